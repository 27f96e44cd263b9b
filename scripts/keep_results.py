"""Take the results of comparing optimizers into those that the documentation shows: by device they replace the older.

python scripts/keep_results.py RESULTS KEPT
"""

import json
import sys
from pathlib import Path

results, kept = (json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:])
for optimizer, result in results.items():
    kept[optimizer] = dict(sorted({**kept.get(optimizer, {}), **result}.items()))
Path(sys.argv[2]).write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n", "utf-8")
