# Databricks notebook source
# MAGIC %md
# MAGIC # 21 million places
# MAGIC Rows of longitude and latitude, as many as you like. Two passes over them: one builds the coreset, one labels.
# MAGIC
# MAGIC Set `KERNELCORESET_ROWS` to 21040936 for the size of the title; two cores take about 16 seconds then.

# COMMAND ----------

import os

from kernelcoreset import Gaussian, choose_k
from kernelcoreset.spark import KernelKMeans, KernelKMeansModel, register

rows = int(os.environ.get("KERNELCORESET_ROWS", "300000"))
place = os.environ.get("KERNELCORESET_PLACE", "/Volumes/main/kernelcoreset/files")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The rows
# MAGIC Five cities of different sizes, with the countryside around them.

# COMMAND ----------

cities = [(-99.1, 19.4), (-46.6, -23.6), (2.3, 48.9), (77.2, 28.6), (139.7, 35.7)]
of = "CASE id % 16 " + " ".join(f"WHEN {i} THEN {{{i % 5}}}" for i in range(15)) + " ELSE {0} END"
points = spark.range(rows).selectExpr(
    "id",
    of.format(*(city[0] for city in cities)) + " + 6 * randn(1) AS longitude",
    of.format(*(city[1] for city in cities)) + " + 4 * randn(2) AS latitude",
)
points.write.mode("overwrite").parquet(f"{place}/places")
points = spark.read.parquet(f"{place}/places")

# COMMAND ----------

# MAGIC %md
# MAGIC ## How many clusters?
# MAGIC A coreset for up to 10 clusters serves every smaller number, so trying them costs no pass over the rows.

# COMMAND ----------

columns = ["longitude", "latitude"]
wide = KernelKMeans(k=10, kernel=Gaussian(sigma=50.0), coresetSize=1000, seed=0, inputCols=columns).fit(points)
choice = choose_k(wide.localModel.coreset, range(2, 9), Gaussian(sigma=50.0))
print(choice.recommended, choice.reason)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Clusters, and what is known about them
# MAGIC `summary` reads all rows once: cost, sizes, and the certificate of the coreset.

# COMMAND ----------

model = KernelKMeans(k=5, kernel=Gaussian(sigma=50.0), coresetSize=1000, seed=0, inputCols=columns).fit(points)
print(model.summary.cluster_sizes, model.summary.cost)
print(model.summary.certificate)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Labels in SQL

# COMMAND ----------

register(spark, "region", model)
points.createOrReplaceTempView("places")
by_region = spark.sql(
    "SELECT region(longitude, latitude) AS region, count(*) AS places FROM places GROUP BY 1 ORDER BY 1"
)
by_region.show()
sizes = {row["region"]: row["places"] for row in by_region.collect()}

# COMMAND ----------

model.write().overwrite().save(f"{place}/places-model")
again = KernelKMeansModel.load(f"{place}/places-model")
labelled = model.transform(points)
different = labelled.join(again.transform(points).selectExpr("id", "prediction AS other"), "id")
print("labels that differ:", different.where("prediction <> other").count())
