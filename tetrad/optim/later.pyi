# What type checkers see of names that tetrad.optim finds later: made by `python -m tests.stubs`.
# ruff: noqa
# fmt: off
from typing import Any

from tetrad.optim.more_optimizers import adabelief as adabelief
from tetrad.optim.more_optimizers import adadelta as adadelta
from tetrad.optim.more_optimizers import adafactor as adafactor
from tetrad.optim.more_optimizers import adamax as adamax
from tetrad.optim.more_optimizers import adamaxw as adamaxw
from tetrad.optim.more_optimizers import adan as adan
from tetrad.optim.more_optimizers import amsgrad as amsgrad
from tetrad.optim.more_optimizers import fromage as fromage
from tetrad.optim.more_optimizers import lamb as lamb
from tetrad.optim.more_optimizers import lars as lars
from tetrad.optim.more_optimizers import nadam as nadam
from tetrad.optim.more_optimizers import nadamw as nadamw
from tetrad.optim.more_optimizers import noisy_sgd as noisy_sgd
from tetrad.optim.more_optimizers import novograd as novograd
from tetrad.optim.more_optimizers import optimistic_gradient_descent as optimistic_gradient_descent
from tetrad.optim.more_optimizers import radam as radam
from tetrad.optim.more_optimizers import rprop as rprop
from tetrad.optim.more_optimizers import sign_sgd as sign_sgd
from tetrad.optim.more_optimizers import sm3 as sm3
from tetrad.optim.more_optimizers import yogi as yogi
from tetrad.optim.moments import scale_by_adadelta as scale_by_adadelta
from tetrad.optim.moments import scale_by_adamax as scale_by_adamax
from tetrad.optim.moments import scale_by_adan as scale_by_adan
from tetrad.optim.moments import scale_by_amsgrad as scale_by_amsgrad
from tetrad.optim.moments import scale_by_belief as scale_by_belief
from tetrad.optim.moments import scale_by_novograd as scale_by_novograd
from tetrad.optim.moments import scale_by_optimistic_gradient as scale_by_optimistic_gradient
from tetrad.optim.moments import scale_by_radam as scale_by_radam
from tetrad.optim.moments import scale_by_rprop as scale_by_rprop
from tetrad.optim.moments import scale_by_sm3 as scale_by_sm3
from tetrad.optim.moments import scale_by_yogi as scale_by_yogi
from tetrad.optim.norms import adaptive_grad_clip as adaptive_grad_clip
from tetrad.optim.norms import add_noise as add_noise
from tetrad.optim.norms import centralize as centralize
from tetrad.optim.norms import clip_by_block_rms as clip_by_block_rms
from tetrad.optim.norms import keep_params_nonnegative as keep_params_nonnegative
from tetrad.optim.norms import normalize_by_update_norm as normalize_by_update_norm
from tetrad.optim.norms import scale_by_factored_rms as scale_by_factored_rms
from tetrad.optim.norms import scale_by_param_block_norm as scale_by_param_block_norm
from tetrad.optim.norms import scale_by_param_block_rms as scale_by_param_block_rms
from tetrad.optim.norms import scale_by_sign as scale_by_sign
from tetrad.optim.norms import scale_by_trust_ratio as scale_by_trust_ratio
from tetrad.optim.norms import set_to_zero as set_to_zero
from tetrad.optim.norms import zero_nans as zero_nans
from tetrad.optim.wrappers import LookaheadParams as LookaheadParams
from tetrad.optim.wrappers import MultiSteps as MultiSteps
from tetrad.optim.wrappers import MultiStepsState as MultiStepsState
from tetrad.optim.wrappers import InjectHyperparamsState as InjectHyperparamsState
from tetrad.optim.wrappers import apply_every as apply_every
from tetrad.optim.wrappers import apply_if_finite as apply_if_finite
from tetrad.optim.wrappers import ema as ema
from tetrad.optim.wrappers import incremental_update as incremental_update
from tetrad.optim.wrappers import inject_hyperparams as inject_hyperparams
from tetrad.optim.wrappers import lookahead as lookahead
from tetrad.optim.wrappers import partition as _multi_transform
multi_transform = _multi_transform
from tetrad.optim.wrappers import partition as partition
from tetrad.optim.wrappers import periodic_update as periodic_update
