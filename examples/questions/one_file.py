"""Why does training on two workers hang, or complain about shards, when my data is one file?"""

import tempfile
from pathlib import Path

import refdist

strategy = refdist.MultiWorkerMirroredStrategy()
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "data.txt").write_text("1\n2\n3\n4\n")
    lines = refdist.data.TextLineDataset([str(Path(folder) / "data.txt")]).batch(2)
    options = refdist.data.Options()
    options.experimental_distribute.auto_shard_policy = refdist.data.AutoShardPolicy.FILE
    for batch in strategy.experimental_distribute_dataset(lines.with_options(options)):
        print(batch)
