package main

// defect is one that was here. The tests ask for what it did.
type defect struct {
	what  string
	found string // how, or notNoted
	fixed string // when, and by which commit
	tests []string
}

const (
	review   = "review, by a program"
	storm    = "storm of random faults"
	trial    = "trial as a new user"
	mixed    = "versions side by side"
	suite    = "the suite of all backends"
	planted  = "planted faults"
	load     = "load test"
	notNoted = "not noted"
)

// defects are those that were more than a word, by what they did, the gravest first.
var defects = []struct {
	did string
	all []defect
}{
	{"Two holders, or a holder that could not know of another one", []defect{
		{"etcd: a leader that was stopped while another was elected answered keepalives, and a holder believed in its lease beside the next one", notNoted,
			"2026-11-22, 26f2ba34", []string{"distributed/etcdlock TestALeaderThatWasStoppedProvesNothing", "distributed/etcdlock TestAKeepaliveOfAnotherTermProvesNothing"}},
		{"Redlock: a claim or a renewal that was answered after its votes had expired counted", storm,
			"2026-11-22, a59ea22f", []string{"distributed/redlock TestAClaimThatIsAnsweredTooLate", "distributed/redlock TestARenewalThatIsAnsweredTooLate"}},
		{"Redlock: a vote counted from a repeated question, but the server had not extended it", notNoted,
			"2026-11-26, 2864eafd", []string{"distributed/redlock TestARepeatedEnterExtendsWhatItCounts"}},
		{"Redis: a late copy of a request shortened a lease that was claimed already", notNoted,
			"2026-11-21, 77bc5909", []string{"distributed/redislock TestScriptsHoldInAnyOrder", "distributed/redislock TestBrokenScriptsAreFound/a repeat that shortens a claim"}},
		{"Redis: the set of readers lived as long as the TTL of the last one, and a writer was let in beside a longer lease", notNoted,
			"2026-11-21, 893a6ab3", []string{"distributed/redislock TestReadersOfDifferentTTL"}},
		{"Redis: a late answer revived a lost reader while a slot moved", notNoted,
			"2026-11-22, c17b0fbc", []string{"distributed/redislock TestALostReaderExtendsNoLock"}},
		{"SQLite: a file that was mounted into two containers without its directory had two logs", review,
			"2026-11-28, a8e84179", []string{"distributed/sqllock/sqlite TestAFileMountedWithoutItsDirectoryIsRefused"}},
		{"SQLite: behind a symbolic link a removed log was not noticed", review,
			"2026-11-28, a8e84179", []string{"distributed/sqllock/sqlite TestConnectionEndsWithTheLog", "distributed/sqllock/sqlite TestFilesThatOthersReachByAnotherPath"}},
		{"MySQL: with sql_select_limit a read that was cut off took leases for gone", review,
			"2026-11-29, 963c386a", []string{"distributed/sqllock TestSelectLimitOfOthers"}},
		{"MySQL: tables on an engine without transactions were accepted", review,
			"2026-11-28, b133c845", []string{"distributed/sqllock TestTablesThatCannotKeepLocks"}},
		{"memcached, several servers: with LocalOnly one silent server let callers in beside the holders at a healthy one", review,
			"2026-11-29, 69de7d1f", []string{"distributed/memcachelock TestOneOfTwoServersIsAway"}},
		{"etcd behind its proxy: after a break the old holder worked on until its function ended", review,
			"2026-11-29, 3957b59a", []string{"distributed/etcdlock TestWatchesThroughTheProxyOfEtcd", "distributed/etcdlock TestWatchesThatNobodyConfirms"}},
		{"gRPC: a context that was taken before the first message outlived the lock", review,
			"2026-11-29, 0bf0dc10", []string{"middleware/grpcguard TestEveryContextOfAStreamEndsWithItsHold"}},
		{"gin: a goroutine that outlived its request joined the lock of the next request", review,
			"2026-11-29, d225eebb", []string{"middleware/ginguard TestContextOfGinAfterItsRequest"}},
		{"HTTP: two numbers beyond 2^53 were two locks, and one product for the handler", review,
			"2026-11-29, dc04150f", []string{"middleware/httpguard TestNumbersOfDifferentKeysAreDifferentForHandlers"}},
		{"Lead inside a hold without a lease led in each process", notNoted,
			"2026-11-26, 358981a6", []string{"internal/behavior TestLeaderWithoutALease/is refused inside a hold"}},
		{"Processes of versions whose formats differ met without a word", mixed,
			"2026-11-29, 29326a04", append(each("TestOtherFormatsAreRefused", "redislock", "redlock", "memcachelock"), "cmd/wllock/internal/command TestVersionsMixed")},
		{"The engine forgot that a lease had gone if it heard so before the answer to its request", review,
			"2026-11-29, 8ebbfdd4", []string{"distributed/driver TestGoneBeforeTheAnswerToEnter"}},
	}},
	{"Fences that fell, or came twice", []defect{
		{"Redis: two refills that overlapped gave out the later block first", storm,
			"2026-11-21, 11a5700f", []string{"internal/parts TestOneAsksForFences", "test/stack TestFencesGrowThroughAMixture"}},
		{"Redlock: fences were reckoned by clocks that a minority had ahead, and fell", notNoted,
			"2026-11-26, 090bddc1", []string{"distributed/redlock TestFencesGrowThoughClocksDisagree", "distributed/redlock TestFencesGrowThoughOurClockIsWrong"}},
		{"PostgreSQL: a lease that expired between two columns of a statement was taken with the fences of before", review,
			"2026-11-22, fd9c4b7d", []string{"distributed/sqllock TestOneTimeDecidesAllColumns"}},
	}},
	{"A lock that was taken away, or stayed taken", []defect{
		{"ZooKeeper: a break that an operator confirmed late ended the lease of another holder", suite,
			"2026-11-26, 90c10786", []string{"distributed/zklock TestConformance/break ends no later lease after the lock was forgotten"}},
		{"MySQL: with sql_safe_updates every lock was lost after T/2, and no check said so", review,
			"2026-11-28, b133c845", []string{"distributed/sqllock/mysql TestPoliciesOfTheServer"}},
		{"After two seconds without CPU 107,000 of 200,000 leases were lost: one call had all renewals", load,
			"2026-11-30, 00fd2415", []string{"distributed/keepalive TestAPauseOfAServiceCostsNoLease"}},
		{"More leases were granted than could be renewed, and 92,000 of 177,000 were lost", load,
			"2026-11-30, ca54fe99", []string{"distributed/keepalive TestNewLeasesWaitForLateRenewals", "distributed/driver TestHeldLeasesGoBeforeNewOnes"}},
		{"A wall clock that was set forward ended every lease", notNoted,
			"2026-11-22, e9cf3920", []string{"distributed/keepalive TestLeftByEitherClock"}},
		{"Redis cluster: one node that hung cost the leases at others", notNoted,
			"2026-11-21, 2d84db1e", []string{"distributed/redislock TestAHungNodeHoldsUpNoOther"}},
		{"etcd: after a token had expired no request was answered ever again", notNoted,
			"2026-11-26, 1247e1a4", []string{"distributed/etcdlock TestATokenThatHasBecomeInvalidIsReplaced"}},
		{"Galera: a node that had left its cluster was not left, and nearly all calls were refused", review,
			"2026-11-29, d94daf2c", []string{"distributed/sqllock/mysql TestNodeThatLeavesItsCluster"}},
		{"A permit whose lease was lost as it was granted was lost for good", notNoted,
			"2026-11-22, 4e962eab", []string{"internal/behavior TestPermitThatIsPassedAsOneIsGranted", "internal/behavior TestModelOfPermits"}},
		{"Redlock: one lease of an hour made each later restart of a server an outage of an hour", notNoted,
			"2026-11-26, 89229617", []string{"distributed/redlock TestALongTTLIsForgotten", "distributed/redlock TestALongTTLStopsNobodyElse"}},
		{"A claim that a late request brought kept a free lock for two T", suite,
			"2026-11-29, c7b622b8", []string{"distributed/driver/register TestALateClaimIsRemoved"}},
		{"A request went on after Close, and what it brought stayed", notNoted,
			"2026-11-27, 49bb33ba", []string{"distributed/driver/register TestNothingIsSentAfterClose"}},
		{"A cut of 100 ms at a release kept the lock taken for T", review,
			"2026-11-29, 8ebbfdd4", []string{"distributed/driver TestADropGoesOnWhileTheServiceMayHaveTheLease", "distributed/driver TestADropIsWaitedForAfterASilence"}},
		{"memcached: a request that arrived late left a place that no caller had", notNoted,
			"2026-11-26, b8623101", []string{"distributed/driver/register TestARequestThatArrivesTooLateDoesNothing"}},
		{"Redis: a clock that was set back made dead waiters seem alive", notNoted,
			"2026-11-21, 23fe1c25", []string{"distributed/redislock TestADeadWaiterAfterTheClockIsSetBack"}},
		{"memcached, several servers: leases at a healthy one were lost while another was silent", review,
			"2026-11-29, 69de7d1f", []string{"distributed/memcachelock TestSilentServerHoldsUpNoOther"}},
		{"A process that was paused inside its transaction kept the row from all later holders", trial,
			"2026-11-29, 318db236", []string{"test/fenced TestAPausedTransactionIsEnded"}},
		{"NoWait did not get a lock that lingered: 0 of 40 tries", review,
			"2026-11-29, 1f5ed50d", []string{"internal/behavior TestNoWaitGetsWhatLingers"}},
		{"Redis: subscriptions stayed at a server that commands had left: 5 locks a second in place of 430", review,
			"2026-11-29, 85d4e6eb", []string{"distributed/redislock TestASubscriptionFollowsTheCommands", "distributed/redislock TestSubscriptionsLeaveANodeThatLeftTheCluster"}},
	}},
	{"A wrong answer, or none in time", []defect{
		{"A release that the next request had overtaken was reported as a loss: 3 of 20,000 calls", storm,
			"2026-11-22, 5ee2ae28", []string{"distributed/redislock TestScenes/a release that the next request overtakes"}},
		{"Redis: a lost lease was told as released when the release was repeated", notNoted,
			"2026-11-21, baba9b4c", []string{"distributed/redislock TestConformanceSingle/prev that was taken away is not reported as released"}},
		{"Redlock: a release that was carried out and not answered was told as a loss", notNoted,
			"2026-11-29, c94043d9", []string{"distributed/redlock TestAReleaseWithoutAnswerIsNoLoss"}},
		{"Callers behind one that waited at a dead backend waited for their whole time", load,
			"2026-11-21, 0ddc22b7", []string{"test/stack TestCallersBehindAHeadWithoutAnswerGetUnavailable"}},
		{"Before the first answer of Redis a cancel took two seconds", review,
			"2026-11-29, 7a8b55c0", []string{"distributed/redislock TestACancelBeforeTheFirstAnswer"}},
		{"etcd: a learner among the members made most commands fail", review,
			"2026-11-29, 6b50adc8", []string{"distributed/etcdlock TestALearnerAmongTheServers"}},
		{"HTTP: ten orders were placed and three answered, behind a WriteTimeout", load,
			"2026-11-26, 0ba86c42", []string{"middleware/httpguard TestEveryOrderThatIsPlacedIsAnswered"}},
		{"echo: a lock that was lost after a 103 was answered with an empty 200", review,
			"2026-11-29, b3f78003", []string{"example/frameworks TestBehindOuterMiddleware", "middleware/echoguard TestErrorOfTheHandler"}},
		{"WithShedHopeless refused few of those that waited in vain, and some of those that would not have", review,
			"2026-11-29, cb578770", []string{"internal/behavior TestShedHopeless"}},
		{"Rate limits: a clock that was set back refused a customer for ten minutes", review,
			"2026-11-29, e8e71a55", []string{"middleware/ratelimit/redislimit TestClockSetBack"}},
		{"Rate limits: a Redis that refused admitted all, without a word", review,
			"2026-11-29, fe482e79", []string{"middleware/ratelimit/redislimit TestRefusedLimiterRefuses"}},
		{"Rate limits: a request could pass at the cost of a refused one", notNoted,
			"2026-11-21, 6b311d19", []string{"middleware/ratelimit/redislimit TestNoRequestPassesUnpaid"}},
		{"Redacted keys stood in the texts of backends' errors", review,
			"2026-11-29, fba4cfd3", each("TestNoKeyLeavesWithRedaction", "redislock", "etcdlock", "zklock", "sqllock")},
		{"A Redis user name without a password was ignored, and the process was another user", review,
			"2026-11-29, 1c23df03", []string{"config TestOpenRedisAsAUserWithoutAPassword"}},
		{"SQLite: who looked at a file as another user shut its owner out", review,
			"2026-11-28, a8e84179", []string{"distributed/sqllock/sqlite TestReadingChangesNothing"}},
		{"wllock run refused a script without an interpreter line after the lock was taken", review,
			"2026-11-29, 8ed62b55", []string{"cmd/wllock/internal/command TestRunHasTheShellRunWhatTheSystemTakesForNoProgram"}},
		{"Lead that was canceled hours after an outage gave that as its reason", trial,
			"2026-11-30, 9a1108ae", []string{"internal/behavior TestLeadForgetsAnOutage"}},
	}},
	{"A gate that would have let a defect pass", []defect{
		{"A random test that failed was repeated with another seed, and called flaky: 5 of 10 runs", planted,
			"2026-11-28, d9f4fa0c", []string{"internal/archtest TestRepeatsThatDoNotCount"}},
		{"The first run of all tests on a bare machine was red beside load", trial,
			"2026-11-28, 402c209c", []string{"distributed/driver TestManySchedules"}},
		{"A seed that was printed did not replay the failure", review,
			"2026-11-28, 9b6720c5", []string{"internal/testseed TestLoggedSeedReplays", "internal/testseed TestEachPlayHasASeed"}},
	}},
}
