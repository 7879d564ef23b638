import java.io.File;
import java.io.FileOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A YARN cluster of one node in one process; writes its configuration to a folder and runs until it is ended. */
public class Mini {
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration wanted = new YarnConfiguration();
        wanted.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        wanted.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        wanted.setFloat("yarn.scheduler.capacity.maximum-am-resource-percent", 1.0f);
        wanted.set("yarn.scheduler.capacity.root.queues", "default");
        wanted.setFloat("yarn.scheduler.capacity.root.default.capacity", 100.0f);
        wanted.setInt("yarn.minicluster.yarn.nodemanager.resource.memory-mb", 5000);
        wanted.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        wanted.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99.9f);
        MiniYARNCluster cluster = new MiniYARNCluster("kc", 1, 1, 1);
        cluster.init(wanted);
        cluster.start();
        Configuration found = new Configuration(cluster.getConfig());
        for (String name : new String[] {"core-site.xml", "yarn-site.xml", "hdfs-site.xml"}) {
            try (FileOutputStream file = new FileOutputStream(new File(arguments[0], name))) {
                found.writeXml(file);
            }
        }
        System.out.println("The cluster is ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
