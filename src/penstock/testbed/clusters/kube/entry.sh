#!/bin/sh
# An executor. Spark hands over what it needs in variables.
[ "$1" = executor ] && shift
for name in $(env | sed -n 's/^\(SPARK_JAVA_OPT_[0-9]*\)=.*/\1/p'); do
    eval "set -- \"\$@\" \"\$$name\""
done
exec "$JAVA_HOME/bin/java" "$@" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$SPARK_CLASSPATH:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
