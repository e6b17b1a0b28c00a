"""Which of my variables does the checkpoint not restore?"""

import tempfile

import refdist

with tempfile.TemporaryDirectory() as folder:
    path = refdist.train.Checkpoint(kernel=refdist.Variable(1.0)).save(f"{folder}/model")
    refdist.train.Checkpoint(weights=refdist.Variable(0.0)).restore(path).assert_consumed()
