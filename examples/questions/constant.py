"""Why can a plain number not be reduced with SUM?"""

import refdist

strategy = refdist.MirroredStrategy(["GPU:0", "GPU:1"])
strategy.reduce("SUM", 8, axis=None)
