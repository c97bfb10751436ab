"""Pure maths on tensors: class statistics, shapes, augmentation, spaces."""

from federatedscope_ggeur.geometry.augmentation import (
    AugmentationSettings,
    AugmentedSet,
    augment,
)
from federatedscope_ggeur.geometry.compressed import (
    CompressedStatistics,
    Compression,
    CompressionLoss,
)
from federatedscope_ggeur.geometry.grid import Grid, GridStatistics
from federatedscope_ggeur.geometry.mean_statistics import MeanStatistics
from federatedscope_ggeur.geometry.rounded_rows import ROW_DTYPES, RoundedRows
from federatedscope_ggeur.geometry.scatter import thin_factor
from federatedscope_ggeur.geometry.shape import GeometricShape, shape_similarity
from federatedscope_ggeur.geometry.sizes import (
    PerAnchorSizes,
    ReleaseSizes,
    Sizes,
    TotalSizes,
)
from federatedscope_ggeur.geometry.spaces import SPACES, Space, SpaceSettings
from federatedscope_ggeur.geometry.statistics import LARGEST_EMBEDDING, ClassStatistics
from federatedscope_ggeur.geometry.summed import SummedStatistics
from federatedscope_ggeur.geometry.totals import Totals, varying
