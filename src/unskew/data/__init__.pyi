"""A log and what belongs to it."""

from unskew.data.factors import Factors as Factors
from unskew.data.impressions import Impressions as Impressions
from unskew.data.propensities import Propensities as Propensities
from unskew.data.ratings import Ratings as Ratings
from unskew.data.universe import Universe as Universe
from unskew.data.weights import inverse_weights as inverse_weights
