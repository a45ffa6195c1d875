package main

// known is a defect of another library or service that its users have reported: the thread, what happened, and the tests that ask the same here.
type known struct {
	where string // owner/name#number on GitHub
	what  string
	tests []string
}

const (
	suiteOnRedis = "distributed/redislock TestConformanceSingle/"
	suiteOnZK    = "distributed/zklock TestConformance/"
)

// others are the defects of others, by kind.
var others = []struct {
	kind string
	all  []known
}{
	{"Renewal", []known{
		{"redisson/redisson#5698", "renewals stop now and then, and a second holder is let in", []string{"distributed/keepalive TestManyLeasesAreRenewedOnTime", "distributed/keepalive TestAPauseOfAServiceCostsNoLease"}},
		{"redisson/redisson#3194", "no renewal after the connection was lost once", []string{suiteOnRedis + "a short network failure costs no lease", "distributed/keepalive TestUnknownThenRecovered"}},
		{"redisson/redisson#7272", "renewal goes on after the release", []string{suiteOnRedis + "a release during a renewal is final", "distributed/keepalive TestRenewalUnderWayIsTheLast"}},
		{"redisson/redisson#2714", "a caller that is interrupted leaves a lock that is renewed for ever", []string{suiteOnRedis + "canceling and leaving at any time leaves nothing"}},
		{"redis/rueidis#923", "renewals drift under CPU load until the lock expires", []string{"distributed/keepalive TestManyLeasesAreRenewedOnTime", "distributed/keepalive TestHangingBackend"}},
		{"bsm/redislock#30", "no renewal, and a failover forgets the lock", []string{suiteOnRedis + "a held lease outlives its TTL", "distributed/redislock TestSentinelFailover"}},
		{"go-redsync/redsync#151", "one server that does not extend has the lock released, though a majority did", []string{"test/chaos TestChaos"}},
		{"samcook/RedLock.net#97", "a lock is not extended, and expires under its holder", []string{suiteOnRedis + "a held lease outlives its TTL"}},
		{"samcook/RedLock.net#68", "a function that hangs keeps the lock for ever", []string{"internal/behavior TestOverstays"}},
		{"swarthy/redis-semaphore#175", "a lock that has expired is silently acquired again by its renewal", []string{"distributed/redislock TestRenewedTogether", suiteOnRedis + "a holder learns that its lease was taken away"}},
		{"leandromoreira/redlock-rb#36", "a lock that has expired is extended", []string{"distributed/redislock TestRenewedTogether", "distributed/redlock TestARenewalThatIsAnsweredTooLate"}},
	}},
	{"The holder is not told", []known{
		{"apache/curator#727", "a holder whose session has expired works on beside the next one", []string{suiteOnZK + "without network a lease ends by the holder's own clock", "distributed/zklock TestExpiryWhileHeld"}},
		{"etcd-io/etcd#10811", "the same", []string{"distributed/etcdlock TestExpiryWhileHeld"}},
		{"etcd-io/etcd#11457", "locks that are no locks: a paused process writes after its successor", []string{lockAndFence, "test/fenced TestAnAccountIsLinearizableWithFences"}},
		{"redisson/redisson#3636", "two workers believe in one lock after a lost connection", []string{suiteOnRedis + "without network a lease ends by the holder's own clock"}},
		{"samcook/RedLock.net#93", "a lock that was lost still says that it is acquired", []string{"distributed/keepalive TestRenewalAnsweredGone"}},
		{"bsm/redislock#93", "no fencing token", []string{suiteOnRedis + "fences grow from lease to lease", suiteOnRedis + "fences grow across an expiry"}},
	}},
	{"Two holders", []known{
		{"etcd-io/etcd#11456", "a waiter gets the lock though its lease has expired meanwhile", []string{"distributed/etcdlock TestScenes/the session of a waiter is revoked", "distributed/etcdlock TestScenes/a request that comes late, when its place was lost"}},
		{"etcd-io/etcd#15247", "a leader that was stuck answers keepalives, of which its successor knows nothing", []string{"distributed/etcdlock TestALeaderThatWasStoppedProvesNothing"}},
		{"apache/curator#1121", "a lock is granted by a node of a session that is about to end", []string{"distributed/zklock TestExpiryWhileWaiting", "test/chaos TestChaos"}},
		{"go-redsync/redsync#186", "one of five servers forgets its vote, and a second majority is found", []string{"distributed/redlock TestServersThatForgetAreNoMajority"}},
		{"lukas-krecan/ShedLock#132", "the times of two clients let both in after a pause", []string{"distributed/sqllock TestClocksMayDiffer", "distributed/sqllock TestOneTimeDecidesAllColumns"}},
		{"lukas-krecan/ShedLock#6", "a job runs twice in a tick, by the difference of clocks", []string{"test/jobs TestOncePerTick", "test/jobs TestNeverTwicePerTickWhenProcessesDie"}},
		{"spring-projects/spring-integration#11044", "a lock that is held is evicted from the map of its process", []string{"local TestPinnedKey", "local TestModel"}},
	}},
	{"A queue that stands still", []known{
		{"redisson/redisson#3730", "a message is lost, and the fair queue waits for nothing", []string{"distributed/redislock TestAReconnectMakesUpForLostMessages", "distributed/redislock TestScenes/a grant whose message is lost (long)"}},
		{"redisson/redisson#1104", "callers that gave up keep their places in the fair queue", []string{suiteOnRedis + "a place that was left is passed over"}},
		{"redisson/redisson#5019", "a timeout leaves an entry in the fair queue", []string{"distributed/redislock TestScenes/the caller of a request goes, which comes late"}},
		{"redisson/redisson#3004", "a living waiter is taken for dead after five minutes", []string{"distributed/redislock TestScenes/a place is kept (long)", "distributed/redislock TestOneLostHeartbeatCostsNoPlace"}},
		{"redisson/redisson#1353", "each dead waiter costs five seconds", []string{"distributed/redislock TestDeadWaitersAreSkippedAFewAtATime"}},
		{"redisson/redisson#6150", "waiters of a process that has ended keep the lock from its successors", []string{"distributed/redislock TestProcesses"}},
		{"redisson/redisson#2278", "a fair lock that many threads want is not granted any more", []string{"distributed/redislock TestHotKey", "local TestNobodyStarves"}},
		{"redisson/redisson#1763", "the release is published before the waiter has subscribed", []string{"distributed/redlock TestANewSubscriptionAsksWhetherOthersWait", "distributed/redislock TestAReconnectMakesUpForLostMessages"}},
		{"apache/curator#1046", "the node before goes between a look and the wait", []string{"distributed/driver TestAMessageDuringTheLookThatFindsTheGrant", "distributed/zklock TestScenes/the first of two waiters wakes, and then the other"}},
	}},
	{"What a lost answer leaves behind", []known{
		{"Netflix/curator#3", "a node was created, the answer was lost, and no client knows the node", []string{"distributed/zklock TestScenes/the answer to a request is lost"}},
		{"zk-ruby/zk#54", "a second node after a lost connection, behind which its own client waits", []string{"distributed/zklock TestScenes/the answer to a request is lost whose caller has gone"}},
		{"samuel/go-zookeeper#237", "a node that its client does not know locks out all others", []string{"distributed/zklock TestScenes/a caller goes while its request is under way"}},
		{"apache/curator#1193", "a release that meets a lost connection forgets the node, which stays", []string{"distributed/zklock TestScenes/the answer to a release is lost"}},
		{"apache/curator#600", "a caller that is interrupted leaves its node", []string{suiteOnZK + "canceling and leaving at any time leaves nothing"}},
		{"python-zk/kazoo#429", "a semaphore that does not wait locks itself out", []string{"distributed/zklock TestScenes/permits that do not wait"}},
		{"hashicorp/vault#2526", "the lock of a process that was killed stays", []string{"distributed/etcdlock TestProcesses"}},
		{"redis/go-redis#2339", "a command is carried out twice when its connection breaks", []string{"distributed/redislock TestAReplyThatIsTornIsAskedForAgain", "distributed/redislock TestScenes/a request is not answered"}},
		{"redis/redis-rb#668", "a command is carried out twice after a timeout", []string{"distributed/redislock TestScenes/a request is not answered"}},
	}},
	{"Release, and the time of callers", []known{
		{"spring-projects/spring-integration#1888", "a lock that has expired keeps the callers of its process out for ever", []string{"internal/behavior TestLoss/a function that ignores it blocks nobody"}},
		{"spring-projects/spring-integration#2661", "the release of a lock that has expired says nothing", []string{suiteOnRedis + "a release of an expired lease touches nobody"}},
		{"mike-marcacci/node-redlock#11", "a release that Redis refuses fails silently", []string{"distributed/redislock TestRefusalsAreAnswers/MISCONF"}},
		{"redisson/redisson#4197", "a lock that comes after the caller's time stays until its lease ends", []string{"internal/behavior TestRefusals/an ended context does not get a free lock", suiteOnRedis + "an enter with a dead context leaves nothing"}},
		{"go-redsync/redsync#68", "a canceled caller sleeps on", []string{"internal/behavior TestEndOfTheCallersContext"}},
		{"go-redsync/redsync#164", "one error for a canceled caller and for a lock that is taken", []string{"internal/behavior TestRefusals", "internal/behavior TestEndOfTheCallersContext"}},
		{"go-redsync/redsync#140", "a slow server delays what a majority has decided", []string{"distributed/redlock TestWhatAReleaseWaitsFor"}},
		{"redis/rueidis#653", "a cancel races with the next request of the same process", []string{suiteOnRedis + "a loop is never delayed by its own earlier release"}},
	}},
	{"Load, memory, connections", []known{
		{"redis/rueidis#602", "waiting costs a whole CPU", []string{"distributed/redislock TestCosts", "distributed/redislock TestPlacesShareAHeartbeat"}},
		{"redisson/redisson#3577", "the pool of subscriptions is used up, and waiters wait for each other", []string{"distributed/redislock TestOneConnectionHearsOfAllSystems"}},
		{"redisson/redisson#4064", "a subscription that failed is left behind", []string{"distributed/redislock TestARefusedChannelLeavesTheOthers"}},
		{"redisson/redisson#3349", "each release is published to all nodes of a cluster", []string{"distributed/redislock TestCosts"}},
		{"redisson/redisson#4943", "a server without pub/sub: jobs run several times", []string{"distributed/redislock TestACommandThatAProxyLacksIsNamed", "distributed/redislock TestPublishRevokedWhileRunning"}},
		{"spring-projects/spring-integration#10557", "a script whose channel is in another slot fails in a cluster", []string{"distributed/redislock TestConformanceCluster"}},
		{"spring-projects/spring-integration#3655", "locks that were used once stay in memory", []string{"local TestKeysLeaveNoMemory"}},
		{"spring-projects/spring-integration#2557", "each try leaves a node", []string{"distributed/zklock TestUnusedKeysLeaveNothing"}},
		{"goauthentik/authentik#23876", "an advisory lock is stranded on a connection of PgBouncer", []string{"distributed/sqllock/postgres TestPoolerIsRecognized", "distributed/sqllock TestIdleHoldsNoConnection"}},
		{"pgdogdev/pgdog#1407", "an advisory lock goes back to the pool with its connection", []string{"distributed/sqllock TestIdleHoldsNoConnection", "distributed/sqllock TestProcesses"}},
		{"samcook/RedLock.net#100", "no figures: how many locks, for how long", []string{"test/telemetry TestMetricsCountWithoutKeys"}},
	}},
}
