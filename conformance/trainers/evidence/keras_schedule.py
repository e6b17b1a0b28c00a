"""Under accumulation, a schedule moves on with every batch, and not with every update of the weights:
`KERAS_BACKEND=torch python keras_schedule.py`."""

import keras
import numpy as np

schedule = keras.optimizers.schedules.ExponentialDecay(1.0, decay_steps=1, decay_rate=0.5)
optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=2)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(optimizer, "mse")
model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0)
steps, rate = int(optimizer.iterations), float(optimizer.learning_rate)
print(f"after {steps} updates the learning rate is {rate:g}; the schedule has {float(schedule(steps)):g} there")
