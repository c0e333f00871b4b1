"""The one thread that writes and syncs the commit log, without ever needing the GIL.

It loops: take everything that is queued, `pwrite`, `fdatasync`, publish the number of the last
batch and signal an eventfd that the event loop watches. While it syncs one batch, the next ones
queue up (adjacent ones as one job). Each job says how long its sync may wait: one with no time to
wait is synced at once, together with everything before it; without such a job the clock decides.
What is acknowledged as soon as it is written is published before the sync. After a failed write or
sync it drops what is queued, and says so, until the log has made a new beginning: a sync that
failed once cannot be trusted the second time.

While the thread waits, the event loop may do a round in its place (`commit_here`). The mutex
decides whose a batch is. Until that round is over, the thread takes nothing.
"""

import os
import threading

import cython
from cython.cimports.headwater.edge.ports.machine_clock import machine_monotonic_ns
from cython.cimports.headwater.edge.storage.device.file_calls import (
    begin_writing,
    sync_file,
    write_some,
)
from cython.cimports.libc.errno import EAGAIN, EINTR, EINVAL, EIO
from cython.cimports.posix.time import CLOCK_MONOTONIC, timespec
from cython.cimports.posix.unistd import write

from headwater.edge.ports.files import close

# Bytes that wait for their sync before the system is asked to begin writing them.
PIECE_BYTES = cython.declare(cython.longlong, 1 << 20)
# A batch of so many bytes shares few pages with its neighbours: it need not be gathered in memory.
LARGE_BYTES = cython.declare(cython.Py_ssize_t, 1 << 16)
# When the last sync is no older, others wait for syncs all the time, and the next one is near.
SOON_NS = cython.declare(cython.longlong, 20_000_000)
SECOND_NS = cython.declare(cython.longlong, 1000000000)
# The event loop stands still for a commit of its own, so a device has to take less for that.
FAST_NS = cython.declare(cython.longlong, 250000)
# After one that took longer than this, the thread has all of them for REST times as long. So the
# loop stands still for a small share of the time when the device is slow now and then.
SLOW_NS = cython.declare(cython.longlong, 2000000)
REST = cython.declare(cython.longlong, 4)
# By which part of itself the running median follows what is measured.
MEDIAN_STEP = cython.declare(cython.longlong, 16)


@cython.cclass
class CommitThread:
    """Owns the thread, its queue and its eventfd; knows files by descriptor only. Without the
    thread, `step` does one round of its work on the caller's."""

    def __cinit__(self, first_batch: int = 1):
        pthread_mutex_init(cython.address(self.mutex), cython.NULL)
        waits: pthread_condattr_t
        pthread_condattr_init(cython.address(waits))
        # Waits end on time when the wall clock is set.
        pthread_condattr_setclock(cython.address(waits), CLOCK_MONOTONIC)
        pthread_cond_init(cython.address(self.wake), cython.address(waits))
        pthread_condattr_destroy(cython.address(waits))
        self.dirty_fd = -1
        self.begun_fd = -1
        self.due_ns = NO_SYNC
        self.written = first_batch - 1
        self.synced = first_batch - 1
        self.done_fd = -1

    def __dealloc__(self):
        pthread_cond_destroy(cython.address(self.wake))
        pthread_mutex_destroy(cython.address(self.mutex))

    def start(self) -> int:
        """Start the thread; returns the eventfd to watch. Raises OSError."""
        self.done_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.threaded = True
        self.thread = threading.Thread(target=self.run, name="headwater-commit", daemon=True)
        try:
            self.thread.start()
        except RuntimeError as error:
            self.thread = None
            raise OSError(
                EAGAIN,
                "no thread can be started: let the node's user have more processes "
                "(LimitNPROC and TasksMax of systemd)",
            ) from error
        return self.done_fd

    def run(self) -> None:
        with cython.nogil:
            self.loop()

    def stop(self) -> None:
        """Write and sync what is queued, then end the thread."""
        with cython.nogil:
            pthread_mutex_lock(cython.address(self.mutex))
            self.stopping = True
            pthread_cond_signal(cython.address(self.wake))
            pthread_mutex_unlock(cython.address(self.mutex))
        if self.thread is not None:
            self.thread.join()
            self.thread = None
            close(self.done_fd)
        else:
            self.step(self.now_ns)
            if self.dirty_fd >= 0:
                self.step(self.now_ns)

    def step(self, now_ns: int) -> None:
        """One round without the thread, never waiting; `now_ns` is any clock that goes on."""
        jobs: Job[64]
        count: cython.int
        self.stepped = True
        self.now_ns = now_ns
        count = self.next_jobs(jobs)
        self.perform(jobs, count)

    @property
    def due_in(self) -> float:
        """Seconds until the next sync by the clock; below 0: none is due."""
        if self.dirty_fd < 0 or self.due_ns == NO_SYNC:
            return -1.0
        return max(self.due_ns - self.now_ns, 0) / 1e9

    def clear_error(self) -> None:
        """Accept jobs again; those that were queued meanwhile are gone."""
        with cython.nogil:
            pthread_mutex_lock(cython.address(self.mutex))
            self.error = 0
            self.job_count = 0
            self.dirty_fd = -1
            self.due_ns = NO_SYNC
            pthread_mutex_unlock(cython.address(self.mutex))

    def counters(self) -> dict[str, int]:
        """Syncs, those of the event loop among them, and bytes written since the start."""
        return {"syncs": self.syncs, "lone_syncs": self.lone, "bytes_written": self.bytes_written}

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def submit(
        self,
        fd: cython.int,
        direct_fd: cython.int,
        data: cython.p_const_uchar,
        length: cython.Py_ssize_t,
        offset: cython.longlong,
        batch: cython.ulonglong,
        delay_ns: cython.longlong,
        notify: cython.bint,
        wake: cython.bint,
    ) -> cython.int:
        """Queue bytes that end with `batch`, to be synced within `delay_ns` (0: at once; NO_SYNC:
        when something else asks for it); `notify` when they are written. `direct_fd` is the same
        file opened for writes past the page cache, or -1. Without `wake`, `commit_here` follows.
        -1: the queue is full."""
        last: cython.pointer(Job)
        answer: cython.int = 0
        pthread_mutex_lock(cython.address(self.mutex))
        last = cython.address(self.jobs[self.job_count - 1 if self.job_count else 0])
        if self.error:
            answer = 0
        elif (
            self.job_count
            and last.fd == fd
            and last.data + last.length == data
            and last.offset + last.length == offset
        ):
            last.length += length
            last.batch = batch
            last.notify |= notify
            if delay_ns < last.delay_ns:
                last.delay_ns = delay_ns
        elif self.job_count == JOBS_MAX:
            answer = -1
        else:
            last = cython.address(self.jobs[self.job_count])
            last.fd = fd
            last.direct_fd = direct_fd
            last.data = data
            last.length = length
            last.offset = offset
            last.batch = batch
            last.delay_ns = delay_ns
            last.notify = notify
            self.job_count += 1
        if wake and self.waiting:
            pthread_cond_signal(cython.address(self.wake))
        pthread_mutex_unlock(cython.address(self.mutex))
        return answer

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def commit_here(self) -> cython.bint:
        """Write and sync what is queued on the caller's thread, if it is one small batch and the
        thread has nothing to do; else wake the thread. Whether it was done, or failed."""
        job: Job
        mine: cython.bint
        pthread_mutex_lock(cython.address(self.mutex))
        mine = (
            (self.waiting or not self.threaded)
            and self.job_count == 1
            and self.dirty_fd < 0
            and self.error == 0
            and not self.stopping
            and self.jobs[0].delay_ns == 0
            and not self.jobs[0].notify
            and self.jobs[0].length <= SMALL_BYTES
        )
        if mine:
            job = self.jobs[0]
            self.job_count = 0
            self.lent = True
        elif self.waiting:
            pthread_cond_signal(cython.address(self.wake))
        pthread_mutex_unlock(cython.address(self.mutex))
        if not mine:
            return False
        self.perform(cython.address(job), 1)
        pthread_mutex_lock(cython.address(self.mutex))
        self.lone += 1
        self.lent = False
        if self.held_up:
            self.held_up = False
            pthread_cond_signal(cython.address(self.wake))
        pthread_mutex_unlock(cython.address(self.mutex))
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def is_fast(self) -> cython.bint:
        """Whether small batches were committed so fast of late that a caller can wait for one."""
        fast: cython.bint
        pthread_mutex_lock(cython.address(self.mutex))
        fast = 0 < self.small_ns < FAST_NS and machine_monotonic_ns() >= self.rested_ns
        pthread_mutex_unlock(cython.address(self.mutex))
        return fast

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def measure(self, took: cython.longlong, now: cython.longlong) -> cython.void:
        """A small batch took `took` ns to commit, until `now`. Called with the mutex."""
        if took > SLOW_NS:
            self.rested_ns = now + REST * took
        if self.small_ns == 0:
            self.small_ns = took
        elif took > self.small_ns:
            self.small_ns += self.small_ns // MEDIAN_STEP
        else:
            self.small_ns -= self.small_ns // MEDIAN_STEP

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def hurry(self, batch: cython.ulonglong) -> cython.void:
        """Sync up to `batch`, which was queued before, without further delay."""
        pthread_mutex_lock(cython.address(self.mutex))
        if batch > self.wanted:
            self.wanted = batch
        if self.waiting:
            pthread_cond_signal(cython.address(self.wake))
        pthread_mutex_unlock(cython.address(self.mutex))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def results(
        self,
        written: cython.pointer(cython.ulonglong),
        synced: cython.pointer(cython.ulonglong),
    ) -> cython.int:
        """What completed so far; returns the errno of a failure, 0 without."""
        error: cython.int
        pthread_mutex_lock(cython.address(self.mutex))
        written[0] = self.written
        synced[0] = self.synced
        error = self.error
        pthread_mutex_unlock(cython.address(self.mutex))
        return error

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def newest_synced(self) -> cython.ulonglong:
        """Number of the newest batch on the device."""
        synced: cython.ulonglong
        pthread_mutex_lock(cython.address(self.mutex))
        synced = self.synced
        pthread_mutex_unlock(cython.address(self.mutex))
        return synced

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def next_jobs(self, jobs: cython.pointer(Job)) -> cython.int:
        """Wait for jobs or for the next sync by the clock; -1 when the thread shall end."""
        count: cython.int
        i: cython.int
        due: timespec
        left: cython.longlong
        pthread_mutex_lock(cython.address(self.mutex))
        while self.lent or (self.job_count == 0 and not self.stopping and not self.stepped):
            self.waiting = True
            if self.lent:
                self.held_up = True
                pthread_cond_wait(cython.address(self.wake), cython.address(self.mutex))
                continue
            if self.dirty_fd >= 0 and self.wanted > self.synced:
                break
            if self.dirty_fd >= 0 and self.due_ns != NO_SYNC:
                left = self.due_ns - machine_monotonic_ns()
                if left <= 0:
                    break
                if left > SECOND_NS:
                    left = SECOND_NS
                left += machine_monotonic_ns()
                due.tv_sec = left // SECOND_NS
                due.tv_nsec = left % SECOND_NS
                pthread_cond_timedwait(
                    cython.address(self.wake), cython.address(self.mutex), cython.address(due)
                )
            else:
                pthread_cond_wait(cython.address(self.wake), cython.address(self.mutex))
        self.waiting = False
        count = self.job_count
        for i in range(count):
            jobs[i] = self.jobs[i]
        self.job_count = 0
        if count == 0 and self.stopping:
            count = -1
        pthread_mutex_unlock(cython.address(self.mutex))
        return count

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def sync(self) -> cython.int:
        """Put what was written on the device; 0, or an errno."""
        if self.dirty_fd < 0:
            return 0
        error: cython.int = sync_file(self.dirty_fd)
        if error:
            return error
        self.dirty_fd = -1
        self.due_ns = NO_SYNC
        self.syncs += 1
        self.synced_ns = machine_monotonic_ns()
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def write_jobs(self, jobs: cython.pointer(Job), count: cython.int) -> cython.int:
        """Write in order; a file is synced before the next one is begun. 0, or an errno."""
        i: cython.int
        error: cython.int
        for i in range(count):
            if self.dirty_fd >= 0 and self.dirty_fd != jobs[i].fd:
                if i:
                    self.notify_written(jobs, i, jobs[i - 1].batch)
                error = self.sync()
                if error:
                    return error
                pthread_mutex_lock(cython.address(self.mutex))
                self.synced = jobs[i - 1].batch if i else self.written
                pthread_mutex_unlock(cython.address(self.mutex))
            self.dirty_fd = jobs[i].fd
            error = self.write_job(cython.address(jobs[i]))
            if error:
                return error
            if jobs[i].delay_ns:
                self.write_ahead(cython.address(jobs[i]))
            self.bytes_written += jobs[i].length
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def write_job(self, job: cython.pointer(Job)) -> cython.int:
        """Write all of a job: past the page cache when its sync follows at once, or it is large and
        its sync follows soon, and the file and the alignment allow that. This saves a copy and
        rewrites no page. 0, or an errno."""
        done: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        direct: cython.bint
        soon: cython.bint = job.delay_ns == 0 or (
            job.length >= LARGE_BYTES and machine_monotonic_ns() - self.synced_ns < SOON_NS
        )
        while done < job.length:
            direct = (
                job.direct_fd >= 0
                and soon
                and not self.no_direct
                and (
                    cython.cast(cython.size_t, job.data + done)
                    | cython.cast(cython.size_t, job.offset + done)
                    | cython.cast(cython.size_t, job.length - done)
                )
                & (BLOCK_BYTES - 1)
                == 0
            )
            n = write_some(
                job.direct_fd if direct else job.fd,
                job.data + done,
                job.length - done,
                job.offset + done,
            )
            if n > 0:
                done += n
            elif n == 0:
                return EIO
            elif direct and n == -EINVAL:
                self.no_direct = True
            elif n != -EINTR:
                return cython.cast(cython.int, -n)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def write_ahead(self, job: cython.pointer(Job)) -> cython.void:
        """Have the system begin to write what waits for its sync, in large pieces, so that the sync
        at the end of the file is short."""
        end: cython.longlong = job.offset + job.length
        if self.begun_fd != job.fd or job.offset < self.begun:
            self.begun_fd = job.fd
            self.begun = job.offset
        if end - self.begun >= PIECE_BYTES:
            begin_writing(job.fd, self.begun, end - self.begun)
            self.begun = end

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def loop(self) -> cython.void:
        jobs: Job[64]
        count: cython.int
        one: cython.ulonglong = 1
        while True:
            count = self.next_jobs(jobs)
            self.perform(jobs, count)
            write(self.done_fd, cython.address(one), 8)
            if count < 0:
                return

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def perform(self, jobs: cython.pointer(Job), count: cython.int) -> cython.void:
        """Write and sync what was taken, and notify how far that came."""
        error: cython.int = 0
        batch: cython.ulonglong = self.written
        small: cython.bint = count == 1 and jobs[0].length <= SMALL_BYTES and jobs[0].delay_ns == 0
        began: cython.longlong = machine_monotonic_ns() if small and self.threaded else 0
        ended: cython.longlong = 0
        if count > 0:
            batch = jobs[count - 1].batch
            error = self.write_jobs(jobs, count)
        if error == 0 and (count < 0 or self.sync_is_due(jobs, count, batch)):
            self.notify_written(jobs, count, batch)
            error = self.sync()
        if began:
            ended = machine_monotonic_ns()
        pthread_mutex_lock(cython.address(self.mutex))
        if ended:
            self.measure(ended - began, ended)
        if error:
            # What was only written cannot be trusted any more: no later round calls it synced.
            self.error = error
            self.job_count = 0
            self.dirty_fd = -1
            self.due_ns = NO_SYNC
            self.written = self.synced
        else:
            self.written = batch
            if self.dirty_fd < 0:
                self.synced = batch
        pthread_mutex_unlock(cython.address(self.mutex))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def sync_is_due(
        self, jobs: cython.pointer(Job), count: cython.int, batch: cython.ulonglong
    ) -> cython.bint:
        """Whether what was just written, or what was written before it, is to be synced now."""
        i: cython.int
        due: cython.longlong
        wanted: cython.ulonglong
        now: cython.longlong = self.clock()
        for i in range(count):
            if jobs[i].delay_ns != NO_SYNC:
                due = now + jobs[i].delay_ns
                if due < self.due_ns:
                    self.due_ns = due
        pthread_mutex_lock(cython.address(self.mutex))
        wanted = self.wanted
        if wanted <= batch:
            self.wanted = 0
        pthread_mutex_unlock(cython.address(self.mutex))
        return now >= self.due_ns or wanted > self.synced

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def notify_written(
        self, jobs: cython.pointer(Job), count: cython.int, batch: cython.ulonglong
    ) -> cython.void:
        """Let those who wait for the write only go on before the sync begins."""
        i: cython.int
        one: cython.ulonglong = 1
        for i in range(count):
            if jobs[i].notify:
                pthread_mutex_lock(cython.address(self.mutex))
                self.written = batch
                pthread_mutex_unlock(cython.address(self.mutex))
                if self.done_fd >= 0:
                    write(self.done_fd, cython.address(one), 8)
                return

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def clock(self) -> cython.longlong:
        """Nanoseconds for the delays."""
        return self.now_ns if self.stepped else machine_monotonic_ns()
