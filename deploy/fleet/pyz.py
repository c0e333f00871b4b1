"""Packs the device's program as one file of some 20 KB, which needs a Python and nothing else."""

import io
import zipfile
from pathlib import Path

DEVICE = Path(__file__).parent / "device"
PACKAGE = "headwater/deploy/fleet/device"
MAIN = "from headwater.deploy.fleet.device.agent import main\n\nraise SystemExit(main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)


def agent_file() -> bytes:
    """Bytes of `agent.pyz`; the same for the same modules."""
    files = {"__main__.py": MAIN}
    parts = PACKAGE.split("/")
    for depth in range(1, len(parts)):
        files["/".join([*parts[:depth], "__init__.py"])] = ""
    for path in sorted(DEVICE.glob("*.py")):
        files[f"{PACKAGE}/{path.name}"] = path.read_text()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED)
    return out.getvalue()
