"""Engines: fits, rankings and cross-validation on a GPU, on a Spark cluster, or from disk.

An engine is an object with settings, such as ``GpuEngine(device="cuda:1")``. Functions with an
argument ``engine=`` take such an object, or a name. A name is looked up in the entry point group
``unskew.engines``, and the class found there is called without arguments. Another package adds an
engine by an entry point in its ``pyproject.toml``:

    [project.entry-points."unskew.engines"]
    mine = "my_package.engine:MyEngine"

An engine implements any of the protocols below; a call that needs another one is an error.

=============== ====================================== ==========================================
protocol        methods                                used by
=============== ====================================== ==========================================
``Engine``      ``run(request)``                       ``fit`` of a log in memory
``AllCells``    ``run(request)`` and                   ``fit`` of the doubly robust learner,
                ``run_pseudo_outcome(request)``        of Rel-MF and of WMF
``Batches``     ``run(request)`` and                   ``cross_validate`` of a log in memory
                ``run_many(requests)``
``FrameEngine`` ``fit_frame(request)``                 ``fit`` of a data frame of the engine
``Doubly``      ``fit_doubly_robust(request)``         ``fit`` of the doubly robust learner to a
                                                       data frame of the engine
``Ranker``      ``positions(factors, user, item)``,    ``evaluate`` with ranking metrics, and
                ``best(factors, n_best, starts,        ``recommend``
                excluded)``
``FrameFolds``  ``split(frame, propensity, ...)``,     ``cross_validate`` on a data frame of the
                ``check_criterion(metric, estimator)`` engine
=============== ====================================== ==========================================

``Engine``, ``FrameEngine``, ``AllCellsEngine`` (above: ``AllCells``), ``BatchEngine``
(``Batches``), ``DoublyRobustFrameEngine`` (``Doubly``) and their requests and results are in
``unskew.factorization.engine``, ``Ranker`` is in ``unskew.ranking.positions``, ``FrameFolds`` in
``unskew.model_selection.folds``.
An engine need not inherit from them: having the methods is enough.

:class:`LocalEngine` fits and serves data frames of any library in this process, with the methods
that :class:`SparkEngine` has for those of Spark.

``engine="auto"`` of ``fit`` is ``"spark"`` for a Spark data frame, ``"disk"`` for the path of
Parquet files, and ``"local"`` otherwise.

Importing this package imports neither torch nor pyspark. An engine whose package is missing raises
:class:`unskew.errors.MissingExtraError` when it is used.
"""

from unskew.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
