# The commands of the README; `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS := spark,demo,deploy,dev
STAMP := $(VENV)/.installed
LINT_TEST := tests/house/test_house.py::test_ruff_and_mypy_are_clean
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS)
FOLDERS := security edge federation hub spark deploy

# Whatever the environment says, bytecode is kept: without it each process of the suite compiles all tests.
unexport PYTHONDONTWRITEBYTECODE

# A copy of the tree that is compiled with the compiler's checks, and the tests of the wire and the log.
SANITIZED := build/sanitized
CHECKS := -O1 -g1 -fsanitize=address,undefined -fno-sanitize=alignment
SANITIZED_TESTS := tests/fuzz tests/abuse/test_wire.py tests/edge/broker/test_client_frames.py \
	tests/edge/broker/test_protocol_transcripts.py \
	tests/edge/websocket/test_websocket_frames.py \
	tests/federation/leaf/test_leaf_frames.py tests/edge/wire tests/edge/subjects \
	tests/edge/jetstream/config/test_guarded_subjects.py \
	tests/edge/jetstream/model/test_odd_header_blocks.py \
	tests/edge/storage/erase/test_erase.py tests/edge/storage/log \
	tests/edge/storage/directory

.PHONY: arm64 differ python314 cluster-faults configurations decisions sanitize bench-access bench-cluster bench-fleet bench-links bench-operations bench-spark clients client-suite clients-install client-javascript client-go client-python client-rust client-java client-c damage faults fleet fuzz help install ext demo check test edge-512 lint bench bench-storage sim sim-bugs sim-held sim-jetstream sim-links sim-mutants slow spark-cluster wheels clean

help:  ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

$(STAMP): bootstrap.py pyproject.toml constraints.txt
	@$(PYTHON) bootstrap.py $(VENV) $(EXTRAS)
	@touch $@

install: $(STAMP)  ## Make the virtual environment and compile

ext: $(STAMP)  ## Compile the hot modules in place; ONLY="a.py b.py" for some of them
	@mkdir -p build
	@HEADWATER_STRICT=1 HEADWATER_EXT="$(ONLY)" flock build/.lock $(BIN)/python setup.py -q build_ext --inplace
	@$(BIN)/python -m compileall -q $(FOLDERS)
	-@$(BIN)/python -m headwater.deploy.start_image

edge-512: $(STAMP) ext  ## The tests of the edge and its links in a cgroup of 512 MiB (root; 20 minutes)
	@$(BIN)/python -m tests.small_machine 512 tests/edge tests/federation

wheels: $(STAMP)  ## Wheels in dist/: TARGETS="x86_64 aarch64" PYTHONS="3.11 3.12" (this machine's without)
	@mkdir -p build
	@flock build/.lock $(BIN)/python wheels.py "$(TARGETS)" "$(PYTHONS)" dist

demo: $(STAMP) ext  ## A fleet on this machine: outage, crash, recovery, analytics
	@$(BIN)/headwater demo $(ARGS)

check: $(STAMP) ext  ## Before each commit: lint, and tests of every package, in three minutes
	@$(BIN)/python lint.py
	@$(PYTEST) $(PARALLEL) @tests/check.txt --deselect $(LINT_TEST) $(ARGS)

test: $(STAMP) ext  ## The test suite but for slow cases, in four processes; WORKERS=0 for one
	@$(BIN)/python -m tests.second_look $(PARALLEL) -m "not slow" $(ARGS)

slow: $(STAMP) ext  ## The slow cases that `make test` leaves out
	@$(BIN)/python -m tests.second_look $(PARALLEL) -m slow $(ARGS)

lint: $(STAMP)  ## ruff and mypy
	@$(BIN)/python lint.py

fuzz: $(STAMP) ext  ## Anything at every door: EXAMPLES=.. of each target
	@FUZZ_EXAMPLES=$(or $(EXAMPLES),2000) $(PYTEST) --timeout=0 tests/fuzz $(ARGS)

decisions: $(STAMP) ext  ## Who may do what, decided by both servers on made-up accounts: SEED=.. RUNS=..
	@$(BIN)/python -m tests.edge.broker.authorize --seed $(or $(SEED),0) --runs $(or $(RUNS),20) $(ARGS)

differ: $(STAMP) ext  ## Generated protocol lines and stream histories on both servers: SEED=.. RUNS=.., ARGS="--kinds histories"
	@$(BIN)/python -m tests.differ --seed $(or $(SEED),0) --runs $(or $(RUNS),200) $(ARGS)

configurations: $(STAMP)  ## What the tests of nats-server configure, by both servers: ANCHOR=its sources, ARGS=--start
	@$(BIN)/python -m tests.edge.conf.anchor_templates $(ANCHOR) $(ARGS)

sim: $(STAMP) ext  ## Simulate consensus: SEED=.. STEPS=.. RUNS=.. (no SEED: a new one)
	@$(BIN)/python -m tests.sim --seed $(or $(SEED),0) --steps $(or $(STEPS),5000) \
		--runs $(or $(RUNS),1) $(ARGS)

sim-bugs: $(STAMP) ext  ## Look for every planted bug with the simulator, from SEED=.. on
	@$(BIN)/python -m tests.sim --bugs --seed $(or $(SEED),1) $(ARGS)

sim-jetstream: $(STAMP) ext  ## Simulate a stream, its consumers and a mirror: SEED=.. STEPS=.. RUNS=.., or ARGS=--bugs
	@$(BIN)/python -m tests.sim.jetstream --seed $(or $(SEED),0) --steps $(or $(STEPS),120) \
		--runs $(or $(RUNS),1) $(ARGS)

sim-held: $(STAMP) ext  ## Simulate what waits while a stream's leader changes: SEED=.. STEPS=.. RUNS=.., or ARGS=--bugs
	@$(BIN)/python -m tests.sim.held --seed $(or $(SEED),0) --steps $(or $(STEPS),60) \
		--runs $(or $(RUNS),1) $(ARGS)

sim-links: $(STAMP) ext  ## Simulate a mirror and sources across a link: SEED=.. STEPS=.. RUNS=.., or ARGS=--bugs
	@$(BIN)/python -m tests.sim.links --seed $(or $(SEED),0) --steps $(or $(STEPS),100) \
		--runs $(or $(RUNS),1) $(ARGS)

sim-mutants: $(STAMP) ext  ## Change hub/raft in small ways and list what the simulator does not notice
	@$(BIN)/python -m tests.sim.planted.mutants --seed $(or $(SEED),1) $(ARGS)

damage: $(STAMP) ext  ## Every crash point and every flipped byte of small stores (two or three hours)
	@HEADWATER_DAMAGE=all $(PYTEST) -q -s tests/edge/storage/whole/test_crash_enumeration.py \
		tests/edge/storage/whole/test_flipped_bits.py tests/edge/storage/whole/test_damaged_pages.py \
		tests/edge/storage/whole/test_truncations.py tests/edge/storage/whole/test_damage_table.py \
		tests/edge/storage/erase/test_erase_crashes.py tests/edge/storage/whole/test_node_machine.py \
		tests/edge/storage/recovery/test_recovery.py $(ARGS)

fleet: $(STAMP) ext  ## Gateways on loopback over real SSH: bad versions, power cuts, kills (minutes; root, openssh-server)
	@HEADWATER_FLEET=all $(BIN)/python -m pytest -q -rs tests/deploy/fleet $(ARGS)

spark-cluster: $(STAMP) ext  ## Spark on a standalone master with workers, shipped environments, Connect, kills (minutes)
	@$(BIN)/python -m pip install -q grpcio==1.85.3 grpcio-status==1.85.3 googleapis-common-protos==1.76.0
	@HEADWATER_SPARK=all $(PYTEST) -rs tests/spark/cluster tests/spark/write/test_killed_driver.py \
		tests/spark/write/test_cluster_writes.py tests/spark/read/test_cluster_reads.py \
		tests/spark/jobs $(ARGS)

sanitize: $(STAMP)  ## Tests of the wire and the log on a copy compiled with address and undefined-behaviour checks
	@mkdir -p $(SANITIZED)
	@git ls-files -z | xargs -0 cp --parents -u -t $(SANITIZED)
	@cd $(SANITIZED) && HEADWATER_SANITIZE="$(CHECKS)" $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	@cd $(SANITIZED) && PYTHONPATH="$(CURDIR)/$(SANITIZED)/build/tree" PYTHONMALLOC=malloc \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		$(CURDIR)/$(BIN)/python -m pytest -n0 -p no:cacheprovider --timeout=300 $(SANITIZED_TESTS) $(ARGS)

clients: clients-install ext  ## Tours of the official clients of other languages and of the `nats` tool, from their registries
	@$(PYTEST) -q -rs tests/clients $(ARGS)

client-suite: $(STAMP) ext  ## The suite of a client with Headwater as `nats-server`: DIR=checkout CMD="cargo test"
	@$(BIN)/python -m tests.clients.client_suite $(DIR) $(CMD)

clients-install: $(STAMP)  ## What the tours need, for the languages whose toolchains are here
	@$(MAKE) --no-print-directory -k -j2 client-javascript client-go client-python client-rust client-java client-c

client-javascript:
	@if command -v npm >/dev/null; then cd tests/clients/javascript && npm install --no-fund --no-audit --loglevel=error; fi

client-go:
	@if command -v go >/dev/null; then cd tests/clients/go && go build -o tour .; fi
	@if command -v go >/dev/null; then cd tests/clients/orbit && go build -o tour .; fi
	@if command -v go >/dev/null; then cd tests/clients/go/old && go build -o tour . && go build -modfile=buckets.mod -tags buckets -o buckets .; fi
	@if command -v go >/dev/null; then GOBIN=$(CURDIR)/tests/clients/tools go install github.com/nats-io/natscli/nats@v0.5.0; fi

ORBIT_PY := nats-core==0.2.0 nats-jetstream==0.3.0 nats-counters==0.1.0 nats-extra==0.1.0 nats-jetstream-extra==0.1.0

client-python:  # An old release, beside the one that the tests use, and the new client, which wants Python 3.13.
	@$(BIN)/python -m pip install -q --no-deps --upgrade --target build/old-nats-py nats-py==2.0.0
	@for each in python3.13 python3.14 $$HOME/.pyenv/versions/3.13.*/bin/python3; do \
		if "$$each" -c pass 2>/dev/null; then \
			"$$each" -m venv build/orbit-py && build/orbit-py/bin/python -m pip install -q $(ORBIT_PY); break; fi; done

client-c:  # The library is the package libnats-dev of Debian.
	@if test -e /usr/include/nats/nats.h && command -v gcc >/dev/null; then cd tests/clients/c && gcc -Wall -o tour tour.c -lnats; fi

client-rust:
	@if command -v cargo >/dev/null; then cd tests/clients/rust && cargo build --quiet; fi

client-java:
	@if command -v mvn >/dev/null; then cd tests/clients/java && mvn --quiet dependency:copy-dependencies -DoutputDirectory=lib && javac -cp 'lib/*' -d classes *.java; fi

bench: $(STAMP) ext  ## Side by side with nats-server
	@$(BIN)/python -m bench $(ARGS)

bench-storage: $(STAMP) ext  ## Storage beside nats-server, and what is required of it
	@$(BIN)/python -m bench.storage $(ARGS)

bench-cluster: $(STAMP) ext  ## Clusters of three beside three nats-servers: speed, gaps, many streams
	@$(BIN)/python -m bench.cluster.speed $(ARGS)

bench-links: $(STAMP) ext  ## Mirrors and sources across links beside nats-server, also on a slow line
	@$(BIN)/python -m bench.links $(ARGS)

bench-spark: $(STAMP) ext  ## The Spark source with its controls, and what is required of it
	@$(BIN)/python -m bench.spark $(ARGS)

bench-operations: $(STAMP) ext  ## Requests of every kind beside nats-server: ARGS="--nodes 3"
	@$(BIN)/python -m bench.operations $(ARGS)

bench-access: $(STAMP) ext  ## Logins by JWT and permissions beside nats-server, and what is required
	@$(BIN)/python -m bench.access --check $(ARGS)

arm64: $(STAMP) ext  ## An emulated aarch64 gateway for `make fleet` (root, debootstrap, qemu-user-static, cross compiler)
	@$(BIN)/python -m tests.deploy.fleet.foreign arm64

python314: $(STAMP) ext  ## A gateway with Python 3.14 for `make fleet` (root, debootstrap)
	@$(BIN)/python -m tests.deploy.fleet.foreign python314

bench-fleet: $(STAMP) ext  ## Flash gateways on loopback beside Ansible: HOSTS=.. (root, openssh-server)
	@test -x build/ansible/bin/ansible-playbook || { $(PYTHON) -m venv build/ansible && build/ansible/bin/pip install -q ansible-core==2.19.14; }
	@$(BIN)/python -m bench.fleet --hosts $(or $(HOSTS),100)

faults: $(STAMP) ext  ## Kills, damage, a full device, clock steps, beside nats-server (half an hour)
	@$(BIN)/python -m bench.faults $(ARGS)

cluster-faults: $(STAMP) ext  ## Break clusters of three, ours and nats-server's: kills, pauses, partitions (root)
	@$(BIN)/python -m bench.cluster.faults $(ARGS)

clean:  ## Remove everything that was built
	@rm -rf build $(VENV) *.egg-info
	@find $(FOLDERS) bench -name '*.so' -delete
