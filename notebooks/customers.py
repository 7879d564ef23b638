# Databricks notebook source
# MAGIC %md
# MAGIC # Segments in bank customers
# MAGIC A table with numbers and names, and no idea what is in it: look first, cluster, describe, label new rows.
# MAGIC
# MAGIC The data are those of a bank's phone campaigns (UCI Bank Marketing, 41,188 customers). Put `bank.parquet` into
# MAGIC the folder that `KERNELCORESET_DATA` names; without it, this notebook makes 20,000 customers of that kind.

# COMMAND ----------

import os

from kernelcoreset import Features, Gaussian
from kernelcoreset.spark import KernelKMeans, KernelKMeansModel, explore

# A volume such as /Volumes/main/kernelcoreset/files; paths without a scheme are the server's.
place = os.environ.get("KERNELCORESET_PLACE", "/Volumes/main/kernelcoreset/files")
data = os.environ.get("KERNELCORESET_DATA")

# COMMAND ----------

if data:
    customers = spark.read.parquet(f"{data}/bank.parquet")
else:
    customers = spark.range(20_000).selectExpr(
        "CAST(id % 3 * 15 + 25 + 4 * randn(1) AS INT) AS age",
        "CAST(1 + floor(3 * rand(2)) AS INT) AS campaign",
        "CASE id % 3 WHEN 2 THEN 0.9 ELSE 4.8 END + 0.1 * randn(3) AS euribor3m",
        "CASE id % 3 WHEN 0 THEN 'student' WHEN 1 THEN 'admin.' ELSE 'retired' END AS job",
        "CASE WHEN id % 3 = 0 THEN 'single' ELSE 'married' END AS marital",
    )
numbers, names = ["age", "campaign", "euribor3m"], ["job", "marital"]
customers = customers.selectExpr("row_number() OVER (ORDER BY age, euribor3m) AS id", *numbers, *names)
customers.write.mode("overwrite").parquet(f"{place}/customers")
customers = spark.read.parquet(f"{place}/customers")
print(f"{customers.count():,} customers")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Look first
# MAGIC A distance adds up columns as they are, so numbers are scaled and names become coordinates. `explore` reads the
# MAGIC rows once and says which numbers of clusters stand out, for every estimator.

# COMMAND ----------

features = Features(scale="standard", categorical=names, log=["campaign"])
found = explore(customers, inputCols=numbers + names, features=features, ks=range(2, 6))
print("\n".join(found.sentences))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Fit
# MAGIC One pass over the rows makes a coreset on the executors. Clustering it takes a fraction of a second.

# COMMAND ----------

estimator = KernelKMeans(
    k=3,
    kernel=Gaussian(sigma=3.0),
    coresetSize=1000,
    seed=0,
    inputCols=numbers + names,
    idCol="id",
    features=features,
    outlierCol="outlier_score",
)
model = estimator.fit(customers)
labelled = model.transform(customers)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What the segments are
# MAGIC Size, the columns that set each one apart, typical customers, and how good the segments are as a whole.

# COMMAND ----------

print(model.localModel.describe())
sizes = {row["prediction"]: row["count"] for row in labelled.groupBy("prediction").count().collect()}
print(sizes)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Customers that fit nowhere
# MAGIC The outlier score is the distance to the center by the typical one in the segment.

# COMMAND ----------

labelled.orderBy("outlier_score", ascending=False).select("id", *numbers, *names, "prediction", "outlier_score").show(5)

# COMMAND ----------

# MAGIC %md
# MAGIC ## New customers
# MAGIC Scales and names are kept in the model, so that new rows are prepared in the same way.

# COMMAND ----------

model.write().overwrite().save(f"{place}/customers-model")
again = KernelKMeansModel.load(f"{place}/customers-model")
different = labelled.join(again.transform(customers).selectExpr("id", "prediction AS other"), "id")
print("labels that differ:", different.where("prediction <> other").count())
