"""
Would the new ranking do better?
================================

A log says what was shown where, with which probability, and what was clicked. From it alone, two
new rankings are compared with the one that made the log.
"""

import matplotlib.pyplot as plt
import numpy as np

import unskew

world = unskew.simulate_impressions(3000, n_items=6, n_slots=2, random_state=4)
every_other = np.arange(0, world.log.n_requests, 2)
train, shown = world.log.take(every_other), world.log.take(every_other[:-1] + 1)
print(shown)

# %%
# The first ranking sorts items by a model of the clicks of every other request. Cells are trained
# on in proportion to how often they were examined. The second ranking is the opposite one. The
# other requests judge them: on the clicks that it was trained on, a model looks too good.
bias = unskew.PositionBias().fit(train)
cells = train.to_cells(bias)
model = unskew.MatrixFactorization(2, 50.0).fit(cells, cells.examination_weights())


def reverse(users, items):
    """The opposite of the model."""
    return -model.predict(users, items)


# %%
# Users read from the top, so a slot is weighted by the items shown down to it (``snrips``).
result = unskew.evaluate_policies(
    shown, {"model": model, "reversed": reverse}, estimators=["snrips"]
)
print(result)
print(result.compare("model", "logged"))
print(result.compare("reversed", "logged"))

# %%
# Values with their intervals. The comparisons above are paired request by request, so they are more
# precise than these intervals suggest.
values = [result.value(name) for name in ("logged", "model", "reversed")]
_, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
for row, value in enumerate(values):
    axes.plot([value.ci_low, value.ci_high], [row, row], color="C0", linewidth=3)
    axes.plot(value.estimate, row, "o", color="C0")
axes.set_yticks(range(3), ["logged", "model", "reversed"])
axes.set(xlabel="clicks of a request, 95 % intervals")
axes.invert_yaxis()
