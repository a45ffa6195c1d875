package model

// instance is a size of a model, and which faults it has.
type instance struct {
	Name        string   `json:"name"`
	About       string   `json:"about"`
	File        string   `json:"file"`
	Definitions []string `json:"definitions"` // of the preprocessor
	Live        bool     `json:"live"`        // it is asked whether who waits is served at last, beside what is asserted
	States      int      `json:"states"`
	Depth       int      `json:"depth"`
	Seconds     float64  `json:"seconds"`
	Broken      string   `json:"broken"` // the property that does not hold. "": all do

	ran bool
}

// mistake leaves out a rule of the code.
type mistake struct {
	Name     string `json:"name"` // behind MISTAKE_
	Rule     string `json:"rule"`
	Where    string `json:"where"` // the file that has the rule
	In       string `json:"in"`    // the instance
	By       string `json:"by"`    // the property that has to break
	CaughtBy string `json:"caught_by"`

	define string // of the preprocessor, beside those of the instance. ONLY_HOLDERS: else another property breaks first
	ran    bool
}

const (
	one, several = "grant.pml", "quorum.pml"

	two, twice, late, ticks, prev, prevTwice, three, crash = "two instances", "sent twice", "late copies", "two ticks", "prev", "prev, sent twice", "three instances", "a crash"
	live, liveFaults                                       = "live", "live, with faults"
	votes, restart, yields, copies                         = "three servers", "a restart", "yields", "three servers, late copies"
)

var instances = []instance{
	{Name: two, About: "two instances with a request each. Requests, answers and messages are late, and messages are lost", File: one, Definitions: []string{"-DN=2", "-DK=1", "-DFENCES"}},
	{Name: ticks, About: "the same with claim windows of two ticks, and one of them enters twice", File: one, Definitions: []string{"-DN=2", "-DK=2", "-DOTHERS=1", "-DW=2", "-DFENCES"}},
	{Name: twice, About: "an enter without an answer is sent again, and the first copy may come late. Places are left", File: one, Definitions: []string{"-DN=2", "-DK=1", "-DTWICE=2", "-DLEAVES", "-DFENCES"}},
	{Name: late, About: "and any answer is lost, so copies of all requests come late", File: one, Definitions: []string{"-DN=2", "-DK=1", "-DTWICE=2", "-DLATE", "-DFENCES"}},
	{Name: prev, About: "an instance enters again, and names the lease that the enter is to release first", File: one, Definitions: []string{"-DN=2", "-DK=2", "-DOTHERS=1", "-DPREV"}},
	{Name: prevTwice, About: "the same, and its enters are sent again, and the first copies may come late", File: one, Definitions: []string{"-DN=2", "-DK=2", "-DOTHERS=1", "-DPREV", "-DTWICE=1"}},
	{Name: three, About: "three instances with a request each", File: one, Definitions: []string{"-DN=3", "-DK=1"}},
	{Name: crash, About: "an instance dies at any moment", File: one, Definitions: []string{"-DN=2", "-DK=1", "-DTWICE=2", "-DCRASH=1", "-DSKIPS"}},
	{Name: live, About: "three instances that enter for ever, without faults", File: one, Live: true, Definitions: []string{"-DN=3", "-DK=1", "-DLIVE"}},
	{Name: liveFaults, About: "two of them with windows of two ticks. Two messages are lost, and the second instance dies", File: one, Live: true,
		Definitions: []string{"-DN=2", "-DK=1", "-DW=2", "-DLIVE", "-DLOSE=2", "-DCRASH=1", "-DSKIPS"}},
	{Name: votes, About: "three servers, and two instances that ask each twice. Requests, answers and messages are late or lost", File: several, Definitions: []string{"-DR=2"}},
	{Name: restart, About: "the same with one question, and a server restarts without its data", File: several, Definitions: []string{"-DR=1", "-DRESTARTS=1"}},
	{Name: yields, About: "votes that are no majority are given to the other instance, perhaps late", File: several, Definitions: []string{"-DR=3", "-DOTHERS=1", "-DYIELDS"}},
	{Name: copies, About: "requests that had no answer may be carried out late", File: several, Definitions: []string{"-DR=1", "-DCOPIES"}},
}

var mistakes = []mistake{
	{Name: "COUNTS_FROM_THE_ANSWER", Rule: "K4: a lease counts from the sending of the question", Where: "distributed/driver/lease.go", In: ticks, By: oneHolder},
	{Name: "RENEWAL_COUNTS_FROM_THE_ANSWER", Rule: "K4: a renewal counts from its sending", Where: "distributed/driver/renew.go", In: ticks, By: oneHolder},
	{Name: "PUSHED_COUNTS_FROM_NOW", Rule: "C4: a pushed grant counts from the last question that was answered with a place", Where: "distributed/driver/attempt.go", In: ticks, By: oneHolder},
	{Name: "AN_EXPIRED_GRANT_IS_USED", Rule: "K2: who takes a lease looks at the clock", Where: "distributed/keepalive", In: two, By: oneHolder},
	{Name: "RENEW_COMPARES_NOTHING", Rule: "R2: a renewal compares the token", Where: "distributed/redislock/lua/renew.lua", In: prev, By: oneHolder, define: onlyHolders},
	{Name: "GRANT_LASTS_T", Rule: "R5: a grant starts with the claim window", Where: "distributed/redislock/lua/queue.lua", In: two, By: deadClaimEnds},
	{Name: "UNREAD_IS_RENEWED", Rule: "C4: a grant that is not read is not renewed", Where: "distributed/driver/lease.go", In: two, By: deadClaimEnds},
	{Name: "FENCE_STAYS", Rule: "R9: the next fence is larger", Where: "distributed/redislock/lua/common.lua", In: two, By: fencesGrow},
	{Name: "TRIED", Rule: "R10: a message is asked about if the enter was sent twice", Where: "distributed/redislock/subscription.go", In: twice, By: oneHolder, define: onlyHolders},
	{Name: "A_REPEAT_CLAIMS_AN_OLD_GRANT", Rule: "R9: so is a late answer to a heartbeat", Where: "distributed/redislock/heartbeat.go", In: twice, By: fencesGrow},
	{Name: "A_REPEATED_ENTER_CLAIMS_AN_OLD_GRANT", Rule: "R9: so late an answer to the enter itself ends the request", Where: "distributed/driver/backend.go", In: twice, By: fencesGrow},
	{Name: "REPEAT_SHORTENS", Rule: "R1: a copy that comes late shortens no claimed lease", Where: "distributed/redislock/lua/enter.lua", In: twice, By: oneHolder},
	{Name: "RELEASE_NOTES_NOTHING", Rule: "R1: a release notes that the request has ended", Where: "distributed/redislock/lua/leave.lua", In: twice, By: releasedStays},
	{Name: "SHORT_RELEASE_OF_A_REPEAT", Rule: "R1: only a request that was sent once is released without a note", Where: "distributed/redislock/claim.go", In: twice, By: releasedStays},
	{Name: "BEAT_QUEUES", Rule: "R7: a heartbeat never enqueues", Where: "distributed/redislock/lua/heartbeat.lua", In: late, By: fencesGrow},
	{Name: "RELEASE_COMPARES_NOTHING", Rule: "R2: a release compares the token", Where: "distributed/redislock/lua/leave.lua", In: prev, By: oneHolder},
	{Name: "ENTER_OVERTAKES", Rule: "R3: no enter overtakes who waits", Where: "distributed/redislock/lua/enter.lua", In: prev, By: inOrder},
	{Name: "OLD_ENTER_IS_SERVED", Rule: "R1: an older request of an instance changes nothing", Where: "distributed/redislock/lua/enter.lua", In: prevTwice, By: releasedStays},
	{Name: "BEAT_FINDS_NO_GRANT", Rule: "R7: a heartbeat finds a grant whose message was lost", Where: "distributed/redislock/lua/heartbeat.lua", In: liveFaults, By: placesStay},
	{Name: "NOBODY_GRANTS_AFTER_EXPIRY", Rule: "R3: who finds the lock missing grants it to the head of the queue", Where: "distributed/redislock/lua/heartbeat.lua", In: liveFaults, By: served},
	{Name: "ONE_VOTE_IS_ENOUGH", Rule: "a lease needs the votes of a majority", Where: "distributed/redlock/rules.go", In: votes, By: oneHolder},
	{Name: "YOUNG_SERVERS_COUNT", Rule: "Q5: a server counts when it has its data for the longest TTL", Where: "distributed/redlock/rules.go", In: restart, By: oneHolder},
	{Name: "AN_UNANSWERED_YIELD_IS_FORGOTTEN", Rule: "Q3: a yield that is not answered voids the server", Where: "distributed/redlock/rules.go", In: yields, By: oneHolder},
}

const onlyHolders = "ONLY_HOLDERS"

// What the models assert. Their comments say what each means.
const (
	oneHolder     = "oneHolder"
	fencesGrow    = "fencesGrow"
	releasedStays = "releasedStays"
	deadClaimEnds = "deadClaimEnds"
	inOrder       = "inOrder"
	placesStay    = "placesStay"
)
