# Databricks notebook source
# MAGIC %md
# MAGIC # Segments of points
# MAGIC Fits kernel k-means to the points of a DataFrame, labels all of them and keeps the model.
# MAGIC Install the wheel in the environment of the notebook first.

# COMMAND ----------

import os

from kernelcoreset import Gaussian
from kernelcoreset.spark import KernelKMeans, KernelKMeansModel

# A volume such as /Volumes/main/kernelcoreset/files; paths without a scheme are the server's.
place = os.environ.get("KERNELCORESET_PLACE", "/Volumes/main/kernelcoreset/files")

# COMMAND ----------

points = spark.range(20_000).selectExpr(
    "id",
    "CASE id % 3 WHEN 0 THEN 0.0 WHEN 1 THEN 9.0 ELSE 3.0 END + randn(1) AS longitude",
    "CASE id % 3 WHEN 2 THEN 20.0 ELSE 0.0 END + randn(2) AS latitude",
)

# COMMAND ----------

estimator = KernelKMeans(k=3, kernel=Gaussian(sigma=5.0), coresetSize=300, seed=0, inputCols=["longitude", "latitude"])
model = estimator.fit(points)

# COMMAND ----------

labelled = model.transform(points)
sizes = {row["prediction"]: row["count"] for row in labelled.groupBy("prediction").count().collect()}
print(sizes)

# COMMAND ----------

model.write().overwrite().save(f"{place}/segment-model")
again = KernelKMeansModel.load(f"{place}/segment-model")
different = labelled.join(again.transform(points).selectExpr("id", "prediction AS other"), "id")
print("labels that differ:", different.where("prediction <> other").count())
