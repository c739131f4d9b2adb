// Package e2e holds the proofs of the whole system: real muster processes on a lab, and what must hold whatever
// happens to them. It has no product code; its tests carry the build tag lab and run with `make test-lab`.
//
// What each proves (the promises are those of docs/architecture.md):
//
//   - TestKillMatrix: gangs are whole across a crash (S1, S2, L3). A process dies by SIGKILL when the response to its
//     k-th write of a kind goes by: BindRequest, preparation of a volume, binding, status, the record of a gang and its
//     delete, what makes a pod its gang by itself. Started again, nothing or
//     all of the gang is bound within ten seconds, and soon all of it; no member is bound before all were decided and
//     prepared; and as the gang needs every GPU there is, nothing can be held anywhere else.
//   - TestForeignScheduler: no overcommitment by us (S3) while a stock kube-scheduler fills the same nodes, and gangs
//     stay whole beside it.
//   - TestBadInput: objects that make no sense are refused, or told what is wrong with them; no process ends, and a
//     gang that comes after all of them starts at once (L4).
//   - TestRolesAlone: the roles work as five processes under their Leases, a standby takes over from a leader that
//     was killed, and a process that is asked to stop does so in time.
//   - TestAdmission: pods of ours come out of their creation complete, or not at all; those of others come out whatever has
//     become of the role, dead or hanging. A queue in use stays. A tenant cannot say what only Muster may say, nor use a
//     queue without the right to (S8).
//   - TestEnvironments, TestSharingExamples: what a kubelet would make of the ConfigMaps, the environment of every container of
//     pods that share GPUs, names the devices that are held for them, also for KAI's own examples applied as they are.
//   - TestReservationProcess: the same with the real program in the pods that hold the devices, under its own account.
//   - TestTimeShares: with a real Prometheus server that scrapes the queue role and the lab, and an hour in its past in
//     which one queue held everything, two queues that ask for everything get what the formula of usage gives.
//   - TestFiveShards: five schedulers on five pools of one cluster, each with the configuration that its SchedulingShard
//     becomes, decide the same situation differently, each on its own nodes.
//   - TestFailover, TestRollingUpgrade: under load, the leader of all roles dies by SIGKILL, or each role is replaced; the
//     next bind comes within seconds, and S1 to S4 hold (L3).
//   - TestAPIServerFaults: the API server refuses, delays, cuts and dies; a process survives it, with bounded memory.
//   - TestEmbeddedHistory: a scheduler that keeps the history itself still has it after SIGKILL.
//   - TestWorkloadKinds: an object of every kind of workload becomes the gang that docs/concepts/workloads.md says, and runs.
//   - TestTenantFuzz: tenants with the ClusterRole edit, and with every right in their namespaces, write at random whatever
//     Muster reads, beside honest ones; S1 to S6, S8, and charges that equal the truth on the nodes (package tenants).
//   - TestVolcanoExamples: Volcano's example files, applied as they are with all faces, run, are denied, or are what no API
//     server takes any more (`make prove-volcano ONLY=examples`).
//
// The tests run the binary that the environment variable MUSTER_BINARY names, or build it.
package e2e
