"""One of several processes that commit to a store at once: run by `commit_cases`.

Arguments: path of the store, name of the writer, number of commits, "links" or "no-links". Waits for a line on its
standard input, then prints a JSON object: the keys whose commit was acknowledged, and what errors came.
"""

import errno
import json
import sys

import kernelcoreset as kc
from kernelcoreset.files import create


def refuse(*_):
    """What a volume of Databricks answers."""
    raise OSError(errno.ENOSYS, "Function not implemented")


def main():
    path, name, commits, links = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    if links == "no-links":
        create.link = refuse
    store = kc.CoresetStore.open(path)
    guarantee = store.guarantee
    print("ready", flush=True)
    sys.stdin.readline()
    acknowledged, conflicts, others = [], 0, []
    for i in range(commits):
        key = f"{name}-{i:04}"
        while key not in acknowledged:
            try:
                store.change(put={key: kc.LeafUpdate(None, rows=i)})
                acknowledged.append(key)
            except kc.ConflictError:
                conflicts += 1
                store = kc.CoresetStore.open(path)
                if key in store:  # the error said to look whether the change is there
                    acknowledged.append(key)
            except Exception as error:
                others.append(f"{type(error).__name__}: {error}")
                break
    print(json.dumps({"acknowledged": acknowledged, "conflicts": conflicts, "others": others, "by": guarantee}))


if __name__ == "__main__":
    main()
