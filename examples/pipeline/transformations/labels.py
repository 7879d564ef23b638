"""A materialized view of all rows with their clusters.

Two settings of Spark say what is read: `spark.kernelcoreset.places`, a folder of Parquet files, and
`spark.kernelcoreset.model`, the folder of a model that a job has left. Each run of the pipeline labels all rows with
the model that is there then.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import kernelcoreset as kc
from kernelcoreset.spark import KernelKMeansModel

spark = SparkSession.active()
# Out here, because Spark does not let the function of a view look at the columns of a DataFrame, as `transform` does.
model = KernelKMeansModel(kc.KernelKMeansModel.load(spark.conf.get("spark.kernelcoreset.model")))
places = spark.read.parquet(spark.conf.get("spark.kernelcoreset.places"))
labelled = model.setParams(inputCols=["longitude", "latitude"]).transform(places)


@dp.materialized_view(comment="All places, each with its cluster and the distance to the center of it")
def labelled_places() -> DataFrame:
    """The rows with two more columns."""
    return labelled
