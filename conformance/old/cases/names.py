"""Names of tf.distribute and their parameters; an implementation may add parameters at the end."""

from refdist.conformance.old.case import PAGE, Case
from refdist.conformance.old.language import op

NEEDS = frozenset({"names"})
# Parameters without `self`, as the pages give them.
PARAMETERS = {
    "MirroredStrategy": "devices cross_device_ops", "OneDeviceStrategy": "device",
    "MultiWorkerMirroredStrategy": "cluster_resolver communication_options",
    "experimental.CentralStorageStrategy": "compute_devices parameter_device",
    "Strategy.scope": "", "Strategy.run": "fn args kwargs options", "Strategy.reduce": "reduce_op value axis",
    "Strategy.gather": "value axis", "Strategy.experimental_local_results": "value",
    "Strategy.experimental_distribute_dataset": "dataset options",
    "Strategy.distribute_datasets_from_function": "dataset_fn options",
    "Strategy.experimental_distribute_values_from_function": "value_fn",
    "ReplicaContext.all_reduce": "reduce_op value options", "ReplicaContext.all_gather": "value axis options",
    "ReplicaContext.merge_call": "merge_fn args kwargs", "get_strategy": "", "get_replica_context": "",
    "has_strategy": "", "in_cross_replica_context": "", "experimental_set_strategy": "strategy",
    "StrategyExtended.update": "var fn args kwargs group", "StrategyExtended.reduce_to":
    "reduce_op value destinations options", "StrategyExtended.batch_reduce_to":
    "reduce_op value_destination_pairs options", "StrategyExtended.colocate_vars_with": "colocate_with_variable",
    "StrategyExtended.variable_created_in_scope": "v", "StrategyExtended.value_container": "value",
    "InputContext": "num_input_pipelines input_pipeline_id num_replicas_in_sync",
    "InputContext.get_per_replica_batch_size": "global_batch_size",
    "HierarchicalCopyAllReduce": "num_packs", "NcclAllReduce": "num_packs",
    "ReductionToOneDevice": "reduce_to_device accumulation_fn",
    "cluster_resolver.ClusterResolver.cluster_spec": "",
    "cluster_resolver.ClusterResolver.master": "task_type task_id rpc_layer",
    **{f"cluster_resolver.{kind}.num_accelerators": "task_type task_id config_proto" for kind in (
        "ClusterResolver", "SimpleClusterResolver", "TFConfigClusterResolver", "SlurmClusterResolver",
        "KubernetesClusterResolver", "GCEClusterResolver", "TPUClusterResolver", "UnionResolver")},
    "cluster_resolver.SimpleClusterResolver":
    "cluster_spec master task_type task_id environment num_accelerators rpc_layer",
    "cluster_resolver.TFConfigClusterResolver": "task_type task_id rpc_layer environment",
    "cluster_resolver.SlurmClusterResolver":
    "jobs port_base gpus_per_node gpus_per_task tasks_per_node auto_set_gpu rpc_layer",
    "experimental.PreemptionCheckpointHandler":
    "cluster_resolver checkpoint_or_checkpoint_manager checkpoint_dir termination_config",
    "experimental.TerminationConfig": "termination_watcher_fn exit_fn grace_period save_fn",
}
MEMBERS = {"ReduceOp": ["SUM", "MEAN"], "InputReplicationMode": ["PER_WORKER", "PER_REPLICA"],
           "experimental.CommunicationImplementation": ["AUTO", "RING", "NCCL"],
           "experimental.CollectiveCommunication": ["AUTO", "RING", "NCCL"]}
PROPERTIES = ("Strategy.extended", "Strategy.num_replicas_in_sync", "Strategy.cluster_resolver",
              "ReplicaContext.num_replicas_in_sync", "ReplicaContext.replica_id_in_sync_group",
              "ReplicaContext.strategy",
              "StrategyExtended.worker_devices", "StrategyExtended.parameter_devices",
              "DistributedDataset.element_spec", "DistributedIterator.element_spec", "DistributedValues", "RunOptions",
              "InputOptions", "CrossDeviceOps", "experimental.ValueContext", "experimental.CollectiveHints")

CASES = [
    *(Case(f"parameters of {name}", op("parameters", name, len(text.split())), text.split(),
           strategy=("default", 1), source=PAGE.format(name), needs=NEEDS) for name, text in PARAMETERS.items()),
    *(Case(f"members of {name}", op("members", name), members, strategy=("default", 1), source=PAGE.format(name),
           needs=NEEDS) for name, members in MEMBERS.items()),
    *(Case(f"there is {name}", op("exists", name), True, strategy=("default", 1), source=PAGE.format(name),
           needs=NEEDS) for name in PROPERTIES),
    # An adapter that finds every name would pass all of the above.
    *(Case(f"there is no {name}", op("exists", name), False, strategy=("default", 1), source=PAGE.format(""),
           needs=NEEDS) for name in ("NoSuchStrategy", "Strategy.no_such_method")),
]
