"""The same objective elsewhere: engines that a factorisation can be fitted by, each loaded when it is asked for."""
