"""Simulated logs whose complete ratings and true propensities are known."""

from unskew.simulation.impressions import CascadeUsers as CascadeUsers
from unskew.simulation.impressions import GeneralUsers as GeneralUsers
from unskew.simulation.impressions import ImpressionSimulation as ImpressionSimulation
from unskew.simulation.impressions import PositionBasedUsers as PositionBasedUsers
from unskew.simulation.impressions import simulate_impressions as simulate_impressions
from unskew.simulation.observation import ByCovariates as ByCovariates
from unskew.simulation.observation import ByRating as ByRating
from unskew.simulation.observation import Observation as Observation
from unskew.simulation.observation import ObservationModel as ObservationModel
from unskew.simulation.observation import Uniform as Uniform
from unskew.simulation.simulator import Simulation as Simulation
from unskew.simulation.simulator import simulate as simulate
