"""The mailer that the shop's plugins share: writes a receipt for each line of JSON that it reads."""

import json
import sys

for line in sys.stdin:
    receipt = json.loads(line)
    print(f"To {receipt['to']}: thank you, that was {receipt['total']}.", flush=True)
