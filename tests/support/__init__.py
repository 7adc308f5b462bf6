"""What several kinds of tests share: broker processes, client drivers, hand-made frames, and waiting."""

import warnings

# Warnings are errors here, and kafka-python reads its schemas with a function that Python 3.11 calls deprecated
# (it is back for good in 3.13). Whoever imports `support` first can import kafka-python after it.
warnings.filterwarnings("ignore", message="(read|open)_text is deprecated", category=DeprecationWarning)
