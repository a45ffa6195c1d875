package main

// fault is something that happens to a process, a server, a network or a clock. A test is named by its directory and its name, and perhaps
// a case that its package, or the suite of all backends, has as a literal.
type fault struct {
	what  string
	must  string   // must hold, beside S1, S2 and S3
	tests []string // that ask it
	note  string   // what they leave out, or why none asks it
}

// lockAndFence is the test of the claim itself.
const lockAndFence = "test/chaos TestLockAndFence"

// faults are the sixty, by what they happen to. Their numbers go on from group to group.
var faults = []struct {
	to  string
	all []fault
}{
	{"Process", []fault{
		{"The holder is killed", "the next one has the lock within T and H", each("TestProcesses", "redislock", "redlock", "etcdlock", "zklock", "sqllock"), ""},
		{"The first waiter is killed", "it is skipped within W", each("TestProcesses", "redislock", "redlock", "etcdlock", "zklock", "sqllock"), ""},
		{"Ten queued instances are killed", "they are skipped at once, or within ten W", []string{
			"distributed/redislock TestDeadWaitersAreSkippedAFewAtATime", "test/chaos TestChaos",
		}, ""},
		{"The holder is stopped beyond T, and goes on", "`ErrLeaseLost` before its next guarded step, and its fenced write is refused", []string{
			lockAndFence, "test/jobs TestLeaderThatWasStoppedIsRefused", "distributed/redislock TestProcesses",
		}, ""},
		{"A waiter is stopped when its grant comes", "the grant is not used, and the next one has it within W", []string{
			"distributed/redislock TestProcesses", "distributed/redislock TestConformanceSingle/a grant that nobody receives delays others by the claim window",
		}, ""},
		{"A process is stopped between a grant and its return", "the lease is looked at again", []string{
			"internal/tenure TestReceiverChecksAgain", "internal/tenure TestGrantLyingInAPlace",
		}, "the clock of a bubble stands for the stop"},
		{"A process is stopped while it hands a lease on", "no stale lease is handed on", []string{
			"internal/tenure TestReceiverChecksAgain", "internal/tenure TestLossMeetsEnd",
		}, "the clock of a bubble stands for the stop"},
		{"One CPU, and a goroutine that spins", "a late renewal is a loss that is told", []string{
			"distributed/keepalive TestRenewalThatWasNotSent", "distributed/keepalive TestUnknownUntilOver",
		}, "the renewal is late by other means: Go preempts a goroutine that spins"},
		{"SIGTERM", "`Close` lets holders finish, and waiters get `ErrClosed`", []string{
			"internal/behavior TestCloseSendsWaitersAwayAndLetsHoldersFinish", "example/recipes/service TestServiceServesRefusesAndEnds",
		}, ""},
		{"The function calls os.Exit", "the lock is free within T", []string{"distributed/redislock TestProcesses"},
			"the process is killed: to a service both look alike"},
		{"The function panics", "the lock is released, and the panic goes on", []string{"internal/behavior TestGuards/panic and Goexit release both tiers"}, ""},
		{"The function calls runtime.Goexit", "the lock is released", []string{"internal/behavior TestGuards/panic and Goexit release both tiers"}, ""},
		{"The function ignores that its context has ended", "no caller of its process is inside before the lease is over", []string{
			"internal/behavior TestLoss/no local caller is inside before the lease has expired",
		}, ""},
	}},
	{"Redis server", []fault{
		{"DEBUG SLEEP beyond T", "the loss is told in time, and fences grow", []string{"distributed/redislock TestServerThatStandsStill/DEBUG SLEEP"}, ""},
		{"CLIENT PAUSE, of writes and of all", "the same", []string{
			"distributed/redislock TestServerThatStandsStill/CLIENT PAUSE WRITE", "distributed/redislock TestServerThatStandsStill/CLIENT PAUSE ALL",
		}, ""},
		{"Connections are closed during an Enter", "one entry in the queue", []string{
			"distributed/redislock TestScenes/a request with a place is not answered", "distributed/redislock TestScriptsHoldInAnyOrder",
		}, "a proxy cuts, in place of CLIENT KILL"},
		{"The subscription is closed during a release", "the grant is found within H", []string{
			"distributed/redislock TestAReconnectMakesUpForLostMessages", "distributed/redislock TestScenes/a grant whose message is lost (long)",
		}, ""},
		{"FLUSHALL under a holder", "it is lost at the next renewal, and fences do not fall", []string{
			"distributed/redislock TestFencesCarryAndObeyWhatWasSeen", "distributed/redislock TestConformanceSingle/a holder learns that its lease was taken away",
		}, ""},
		{"A restart without data", "the same", []string{"distributed/redislock TestFencesGrowOverARestartWithoutData"}, ""},
		{"The server is killed, with an append-only file", "nothing is lost", []string{"distributed/redislock TestAnAppendOnlyFileOutlivesAKill"},
			"the machine goes on: a power cut loses up to a second"},
		{"SCRIPT FLUSH under load", "no caller notices", []string{"distributed/redislock TestScriptFlushUnderLoadIsUnseen"}, ""},
		{"BUSY, by another client's endless script", "it passes", []string{"distributed/redislock TestBusyScriptPasses"}, ""},
		{"Memory is full, and nothing is evicted", "a new lock fails cleanly, renewal and release work", []string{"distributed/redislock TestFullMemory"}, ""},
		{"A policy that evicts", "a warning at the start", []string{"distributed/redislock TestEvictingPolicyIsWarnedOf"}, ""},
		{"maxclients is reached", "`ErrUnavailable` by the deadline, and no storm of dials", []string{"distributed/redislock TestNoConnectionToSpare"}, ""},
		{"The user lacks the channel", "refused at the start, and the rule is named", []string{"distributed/redislock TestMissingACLRuleIsNamed/the channel"}, ""},
		{"PUBLISH is taken away", "grants are found by polling", []string{"distributed/redislock TestPublishRevokedWhileRunning"}, ""},
		{"The password changes", "no lease is lost", []string{"distributed/redislock TestPasswordFromAFileCanChange"}, ""},
		{"NOREPLICAS", "an answer, and the release is tried again", []string{
			"distributed/redislock TestRefusalsAreAnswers/NOREPLICAS", "distributed/redislock TestScenes/a release in the background is refused twice",
		}, ""},
		{"MISCONF", "the same", []string{"distributed/redislock TestRefusalsAreAnswers/MISCONF"}, ""},
	}},
	{"Replicas and clusters", []fault{
		{"A replica without the last write is promoted", "the old holder loses the lease, and fences grow", []string{
			"distributed/sqllock TestFailover", "distributed/redislock TestFencesGrowOverARestartWithoutData",
		}, "over PostgreSQL exactly so. Over Redis all data is lost instead"},
		{"A failover by sentinels under load", "both sides are served again", []string{
			"distributed/redislock TestSentinelFailover", "distributed/redislock TestSubscriptionsAreAtThePrimaryAfterAFailover",
		}, ""},
		{"The old primary still takes writes", "it is left, and the store refuses one of two", []string{
			"distributed/redislock TestSentinelOldPrimaryIsLeft", "test/fenced TestAClaimExcludesEarlierHolders",
		}, ""},
		{"READONLY", "an answer, and the primary is looked for", []string{
			"distributed/redislock TestRefusalsAreAnswers/READONLY", "distributed/redislock TestSentinelFailover",
		}, ""},
		{"MOVED and ASK while slots move", "one effect for each request", []string{
			"distributed/redislock TestClusterReshardHasOneEffect", "distributed/redislock TestAMovedSlotCostsNoLease",
		}, ""},
		{"Scripts on several shards", "all keys of a lock are in one slot", []string{
			"distributed/redislock TestConformanceCluster", "distributed/redislock TestTheDocumentedACLLineIsEnoughInACluster",
		}, ""},
		{"CLUSTERDOWN", "the node is left", []string{"distributed/redislock TestSubscriptionsLeaveANodeThatLeftTheCluster"}, "one node says so, not the whole cluster"},
		{"Redlock: one of five servers restarts, and then another", "no second majority", []string{
			"distributed/redlock TestServersThatForgetAreNoMajority", "test/chaos TestChaos",
		}, ""},
	}},
	{"Network", []fault{
		{"A request is carried out, and its answer is lost", "the same answer when it is asked again, and one effect", append(
			each("TestScenes", "redislock", "etcdlock", "zklock", "sqllock", "memcachelock"),
			"distributed/redlock TestARepeatedEnterExtendsWhatItCounts", "distributed/sqllock TestEachStatementIsBroken"), ""},
		{"A half-open subscription", "it is replaced within two H", []string{"distributed/redislock TestHalfOpenSubscriptionIsReplaced"}, ""},
		{"Delays up to T/2, with jitter", "a lease only becomes shorter by it", []string{
			"distributed/keepalive TestLateAnswers", "distributed/redislock TestASlowerNetworkIsNoticed", "distributed/redlock TestAClaimThatIsAnsweredTooLate",
		}, ""},
		{"A reset in the middle of an answer", "one effect", []string{"distributed/redislock TestAReplyThatIsTornIsAskedForAgain"}, ""},
		{"Commands pass, messages do not", "grants are found by polling", []string{
			"distributed/redislock TestPublishRevokedWhileRunning", "distributed/redislock TestARefusedChannelLeavesTheOthers",
		}, ""},
		{"A slow subscriber", "the server closes it, and what it has missed is found", []string{"distributed/redislock TestAReconnectMakesUpForLostMessages"},
			"the close, not the full buffer before it"},
		{"Grants arrive twice, or in another order", "a stale one is not believed", []string{
			"distributed/redislock TestAGrantBelowAKnownFenceIsNotBelieved", "distributed/redislock TestAGrantThatNobodyWaitsForIsGivenBack",
			"distributed/redlock TestAnAnswerThatIsOlderThanANotice",
		}, ""},
		{"A request arrives when its caller has left", "it costs others W at most", []string{
			"distributed/redislock TestScenes/the caller of a request goes, which comes late", "distributed/etcdlock TestScenes/a request that comes late does nothing",
			"distributed/driver/register TestARequestThatArrivesTooLateDoesNothing",
		}, ""},
	}},
	{"Clock", []fault{
		{"The server's clock is set forward by 40 s", "the old holder loses the lease, and fences grow", []string{
			"distributed/redislock TestAClockSetForwardEndsALease", "distributed/sqllock TestClockIsSetForward", "distributed/redlock TestAClockThatIsSetForwardInBothMajorities",
		}, ""},
		{"The server's clock is set back by 40 s", "a living holder keeps the lock, and a dead one does not for long", []string{
			"distributed/redislock TestAClockSetBackTakesNoLeaseFromALivingHolder", "distributed/redislock TestADeadWaiterAfterTheClockIsSetBack",
			"distributed/sqllock TestClockIsSetBack",
		}, ""},
		{"The host is suspended", "the lease is over when it wakes", []string{
			"distributed/keepalive TestSuspendedHolder", "distributed/keepalive TestLeftByEitherClock",
		}, "the clocks say so, no machine is suspended"},
	}},
	{"Callers", []fault{
		{"A caller leaves at any step", "nothing is left after W", each("TestConformance/canceling and leaving at any time leaves nothing", "etcdlock", "zklock", "sqllock", "memcachelock", "redlock"), ""},
		{"100,000 waiters leave together", "within a second", []string{"local TestAllWaitersCancelAtOnce"}, ""},
		{"1,000,000 keys", "their memory is given back", []string{"local TestKeysLeaveNoMemory", "distributed/memlock TestMemoryReturns"}, ""},
		{"Close during an Enter, a hold and a hand-off", "nothing is left", []string{
			"internal/behavior TestCloseSendsWaitersAwayAndLetsHoldersFinish", "local TestCloseWhileBusy", "distributed/driver TestCloseDropsWhatAnEnterLeaves",
		}, ""},
		{"A second Release", "others are untouched", []string{"distributed/etcdlock TestConformance/a second release is answered nil and touches nobody"}, ""},
		{"A Release after the lease has expired", "the same", []string{"distributed/etcdlock TestConformance/a release of an expired lease touches nobody"}, ""},
		{"Nested guards", "no caller waits for itself", []string{"internal/behavior TestNestedGuards"}, ""},
		{"A then B, against B then A", "both return by their deadlines", []string{
			"example/recipes TestNestedLocksInOppositeOrdersDeadlock", "example/recipes TestTransfersInBothDirections",
		}, ""},
		{"A waiter in a hurry behind one without a deadline", "it returns by its own", []string{
			"local TestWaitingEnds", "internal/conn TestPipelineKeepsNobodyPastItsDeadline",
		}, ""},
		{"Keys with `:`, braces, line ends, NUL, 64 KB, or bytes that are no text", "two valid keys are two locks, others are refused", []string{
			"distributed/redislock TestConformanceSingle/any two valid keys are different locks", "distributed/redislock FuzzHelperKeys", ". FuzzNamesDoNotMeet",
			"distributed/etcdlock FuzzName",
		}, ""},
		{"Redis is back after 60 s, and 100 instances wait", "they ask at different times, and the first grant comes within two seconds", []string{
			"test/stack TestAHundredInstancesAfterAnOutage", "test/stack TestFailClosedAnswersFastAndRecovers", "internal/outage TestRecoversWhateverHappens",
		}, "a backend in memory stands for Redis"},
	}},
}

// each names a test of several backends.
func each(test string, backends ...string) (tests []string) {
	for _, backend := range backends {
		tests = append(tests, "distributed/"+backend+" "+test)
	}
	return tests
}
