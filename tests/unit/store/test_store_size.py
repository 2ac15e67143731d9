"""What many jobs cost in memory, and what is not done for them."""

import json
import subprocess
import sys
from pathlib import Path

from monkey.store import STATE_NAME, Change, Store

# Peak memory in bytes before and after opening, the documents that were parsed for it, and after compaction.
OPENER = """
import json, resource, sys
from pathlib import Path
from monkey.store import Store, changes

parsed = 0
loads = json.loads
def counted(text):
    global parsed
    parsed += 1
    return loads(text)
json.loads = counted

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
store = Store.open(Path(sys.argv[1]))
opened, at_open = peak(), parsed
newest = next(store.iter_jobs(newest_first=True))["juid"]
first = store.first_by_state("QUEUED")
at_newest = parsed
store.compact()
print(json.dumps([before, opened, peak(), at_open, at_newest - at_open, newest, first]))
"""


def test_opening_and_compacting_keep_one_copy_of_what_the_file_holds(tmp_path: Path) -> None:
    count = 12_000
    with Store.open(tmp_path) as store:
        for begin in range(0, count, 1000):
            store.commit(
                Change.put("jobs", str(n), {"juid": str(n), "state": "QUEUED", "nickname": "kob", "pad": "x" * 2000})
                for n in range(begin, begin + 1000)
            )
    size = (tmp_path / STATE_NAME).stat().st_size
    done = subprocess.run([sys.executable, "-c", OPENER, tmp_path], capture_output=True, text=True, check=True)
    before, opened, compacted, at_open, at_newest, newest, first = json.loads(done.stdout)
    assert opened - before < 1.4 * size
    assert compacted - before < 1.5 * size
    # The table `_journal` is parsed at the open, and one job when one is asked for.
    assert (at_open, at_newest) == (1, 1)
    assert (newest, first) == (str(count - 1), "0")
