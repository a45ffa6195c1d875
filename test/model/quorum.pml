/*
 * The votes of distributed/redlock: one lock on three servers, of which two are a majority, and two instances that ask for it.
 *
 * grant.pml says how to read this. Here a question and its answer are one step, which comes at any time after the question was sent: what is
 * known of a server counts from the sending, so an answer that comes later only tells less. An answer that is lost is a copy that comes late.
 *
 * -DMISTAKE_x leaves out one rule of the code. instances_test.go lists them, with the instances.
 */
#define S 3 /* servers */
#define N 2 /* instances */
#ifndef K
#define K 1 /* requests (bids) of each */
#endif
#ifndef W
#define W 1 /* ticks for which a vote lasts, and counts */
#endif
#define T (2*W) /* ticks of a lease that was renewed. It is the longest TTL in use, too */
#ifndef R
#define R 2 /* questions of the first to each server */
#endif
#ifndef OTHERS
#define OTHERS R /* questions of the other */
#endif
#define MOST(c) (c == 0 -> R : OTHERS)
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifdef MISTAKE_ONE_VOTE_IS_ENOUGH
#define QUORUM 1
#else
#define QUORUM 2 /* rules.go quorum */
#endif

#define ENTERS 0
#define BEATS 1
#define YIELDED 2
#define RENEWALS 3
#define LEAVES 4

#define AT(c, s) ((c) * S + (s))
#define HAS(set, a) (((set) >> (a)) & 1)
#define ADD(set, a) set = set | (1 << (a))
#define CUT(set, a) set = set & ~(1 << (a))

mtype = { IDLE, TRYING, HELD };                 /* bid.go phase */
mtype = { NONE, ENTER, BEAT, YIELD, RENEW };    /* a question to all servers */

/* The servers. NOBODY has a free lock. */
#define NOBODY N
byte voter[S] = NOBODY, voterBid[S], ttl[S];
byte place[N * S], number[N * S];               /* of each instance: the request that waits there, and which of its questions the server saw last */
byte head[S];                                   /* who is first, if both wait */
byte ageOf[S] = T;                              /* ticks since the server has its data, up to T */

/* The instances. Each owns its own. */
mtype st[N] = IDLE;
byte bid[N];                                    /* its latest request */
byte left[N];                                   /* ticks for which its lease is valid, as it counts them */
byte counts[N * S];                             /* ticks for which it counts the server's vote */
byte wouldCount[N * S];                         /* ticks for which a vote would that follows the question that was answered last */
byte answered[N * S];                           /* which question that was */
byte toldAge[N * S];                            /* how old the server said it is, and has become since */
byte isVoid[N];                                 /* set of servers whose votes do not count any more (vote.void) */
byte vacant[N];                                 /* set of servers that have lost its vote and are free (bid.vacant) */
mtype round[N] = NONE;                          /* what it asks */
byte pending[N], age[N];                        /* set of the servers that have not answered, and ticks since it was sent */
byte asked[N];                                  /* how many rounds so far */
byte kept[N], gone[N];                          /* how many have said "held" to a renewal, and how many have not the vote any more */

/* The network: copies of questions, by request, and votes that were published: of which request, after which question, and the server's age. */
#define LATE(what, c, s) copies[(what) * N * S + AT(c, s)] /* a set of requests */
#define ANY_LATE(what) (LATE(what, c, 0) || LATE(what, c, 1) || LATE(what, c, 2))
byte copies[5 * N * S];
chan notice[N * S] = [1] of { byte, byte, byte };

bit oneHolder = 1; /* asserted: never do two instances believe that they hold the lock */
byte restarts;

hidden byte i, n; /* of one step */

/*** The scripts ***/

#define HOLDS(c, b, s) (voter[s] == (c) && voterBid[s] == (b))

/* take (common.lua) */
inline take(c, b, s) { voter[s] = c; voterBid[s] = b; ttl[s] = W }

inline free(s) { voter[s] = NOBODY; voterBid[s] = 0; ttl[s] = 0 }

/* forget (common.lua) */
inline forget(c, s) {
	place[AT(c, s)] = 0; number[AT(c, s)] = 0;
	head[s] = (place[AT(1 - c, s)] > 0 -> 1 - c : 0)
}

/* queued (common.lua): behind all, or before all if it has had the vote. Copies that come late have number 0, which follows no question that waits */
inline queueAt(c, b, s, no, first) {
	if
	:: place[AT(c, s)] != (b) -> head[s] = (place[AT(1 - c, s)] > 0 && !(first) -> 1 - c : c)
	:: else
	fi;
	place[AT(c, s)] = b; number[AT(c, s)] = no
}

/* advance and grant (common.lua): a free lock goes to the head of the queue, which is told with the number of its question */
inline advance(s) {
	n = head[s];
	if
	:: voter[s] == NOBODY && place[AT(n, s)] > 0 ->
		take(n, place[AT(n, s)], s);
		if
		:: nfull(notice[AT(n, s)]) -> notice[AT(n, s)]!voterBid[s], number[AT(n, s)], ageOf[s]
		:: full(notice[AT(n, s)]) -> skip
		fi;
		forget(n, s)
	:: else
	fi
}

/* letgo (common.lua) */
inline letgo(c, b, s) {
	if
	:: place[AT(c, s)] == (b) -> forget(c, s)
	:: else
	fi;
	if
	:: HOLDS(c, b, s) -> free(s)
	:: else
	fi
}

inline extend(s, d) { ttl[s] = (ttl[s] > (d) -> ttl[s] : d) }

/* enter.lua, heartbeat.lua */
inline askFor(c, b, s, no) {
	if
	:: !HOLDS(c, b, s) -> advance(s)
	:: else
	fi;
	if
	:: HOLDS(c, b, s) -> extend(s, W)
	:: !HOLDS(c, b, s) && voter[s] == NOBODY -> take(c, b, s) /* nobody is queued */
	:: else -> queueAt(c, b, s, no, 0)
	fi
}

/* yield.lua: the vote goes to the other */
inline give(c, b, s, no) {
	if
	:: HOLDS(c, b, s) ->
		free(s);
		queueAt(c, b, s, no, 1);
		if
		:: place[AT(1 - c, s)] > 0 -> head[s] = 1 - c
		:: else
		fi;
		advance(s)
	:: else -> queueAt(c, b, s, no, 0)
	fi
}

/* renew.lua */
inline renew(c, b, s, again, word) {
	if
	:: HOLDS(c, b, s) -> extend(s, T); word = 1
	:: !HOLDS(c, b, s) && voter[s] == NOBODY && again ->
		take(c, b, s);
		if
		:: place[AT(c, s)] == (b) -> forget(c, s)
		:: else
		fi;
		word = 2
	:: !HOLDS(c, b, s) && voter[s] == NOBODY && !again -> word = 3
	:: else -> word = 4
	fi
}

/* leave.lua */
inline leave(c, b, s) { letgo(c, b, s); advance(s) }

/*** The instances ***/

/* park makes copies that come late of the questions that were not answered. A yield among them voids the server (vote.missed). */
inline park(c) {
	i = 0;
	do
	:: i < S ->
		if
		:: HAS(pending[c], i) ->
			if
#ifdef COPIES
			:: round[c] == ENTER -> ADD(LATE(ENTERS, c, i), bid[c])
			:: round[c] == BEAT -> ADD(LATE(BEATS, c, i), bid[c])
			:: round[c] == RENEW -> ADD(LATE(RENEWALS, c, i), bid[c])
#else
			:: round[c] != YIELD -> skip                               /* they are lost */
#endif
			:: round[c] == YIELD ->
				ADD(LATE(YIELDED, c, i), bid[c]);
#ifndef MISTAKE_AN_UNANSWERED_YIELD_IS_FORGOTTEN
				ADD(isVoid[c], i)
#endif
			fi
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	round[c] = NONE; pending[c] = 0; age[c] = 0; kept[c] = 0; gone[c] = 0
}

inline send(c, what, servers) { park(c); round[c] = what; pending[c] = servers; asked[c]++ }

/* finish: nothing of the request is counted here any more. Each server is told to remove it (parting.go depart), some day, or never. */
inline finish(c) {
	park(c);
	do
	:: i < S ->
		ADD(LATE(LEAVES, c, i), bid[c]);
		counts[AT(c, i)] = 0; wouldCount[AT(c, i)] = 0; answered[AT(c, i)] = 0; toldAge[AT(c, i)] = 0;
		i++
	:: else -> break
	od;
	i = 0;
	st[c] = IDLE; left[c] = 0; isVoid[c] = 0; vacant[c] = 0; asked[c] = 0
}

/* over: all have answered */
inline over(c) {
	if
	:: pending[c] == 0 -> round[c] = NONE; age[c] = 0
	:: else
	fi
}

/* told (rules.go vote.told): the vote counts from the sending (rule Q3) */
inline told(c, s) {
	CUT(pending[c], s);
	answered[AT(c, s)] = asked[c];
	toldAge[AT(c, s)] = ageOf[s];
	wouldCount[AT(c, s)] = (age[c] < W -> W - age[c] : 0);
	counts[AT(c, s)] = (HOLDS(c, bid[c], s) -> wouldCount[AT(c, s)] : 0);
	over(c)
}

/* What counts (rules.go vote.counts): it is there, not void, and of a server that has its data for the longest TTL (rule Q5) */
#ifdef MISTAKE_YOUNG_SERVERS_COUNT
#define OLD_ENOUGH(c, s) 1
#else
#define OLD_ENOUGH(c, s) (toldAge[AT(c, s)] == T)
#endif
#define COUNTS(c, s, d) (counts[AT(c, s)] >= (d) && !HAS(isVoid[c], s) && OLD_ENOUGH(c, s))
#define MAJORITY(c, d) (COUNTS(c, 0, d) + COUNTS(c, 1, d) + COUNTS(c, 2, d) >= QUORUM)

/* one sets s to any server of a set. */
inline one(set) {
	if
	:: HAS(set, 0) -> s = 0
	:: HAS(set, 1) -> s = 1
	:: HAS(set, 2) -> s = 2
	fi
}

/* late takes any copy of such a question. */
inline late(what) {
	if
	:: LATE(what, c, 0) -> s = 0
	:: LATE(what, c, 1) -> s = 1
	:: LATE(what, c, 2) -> s = 2
	fi;
	b = (HAS(LATE(what, c, s), 1) -> 1 : 2);
	CUT(LATE(what, c, s), b)
}

active [N] proctype instance() {
	byte c = _pid, s, b, no, word;
	do
	/* Enter: half.go Prepare and Enter, asking.go enter */
	:: d_step { st[c] == IDLE && bid[c] < K -> bid[c]++; st[c] = TRYING; send(c, ENTER, 7) }
	/* bid.go win: the lease lasts as long as the second newest vote (rules.go majoritySince) */
	:: d_step { st[c] == TRYING && MAJORITY(c, 1) ->
		park(c);
		st[c] = HELD;
		left[c] = W;
		do
		:: !MAJORITY(c, left[c]) -> left[c]--
		:: else -> break
		od;
		oneHolder = st[1 - c] != HELD;
		assert(oneHolder) }
	/* A heartbeat of a place: waiting.go beat */
	:: d_step { st[c] == TRYING && asked[c] < MOST(c) -> send(c, BEAT, 7) }
#ifdef YIELDS
	/* A vote that is no majority is given to the other: waiting.go yield. Until it is answered it is none (vote.yield) */
	:: d_step { st[c] == TRYING && asked[c] < MOST(c) && !MAJORITY(c, 1) && (counts[AT(c, 0)] || counts[AT(c, 1)] || counts[AT(c, 2)]) ->
		send(c, YIELD, ((counts[AT(c, 0)] > 0) + 2 * (counts[AT(c, 1)] > 0) + 4 * (counts[AT(c, 2)] > 0)));
		counts[AT(c, 0)] = 0; counts[AT(c, 1)] = 0; counts[AT(c, 2)] = 0 }
#endif
	/* Its caller gives up, or releases the lease */
	:: d_step { st[c] == TRYING || st[c] == HELD -> finish(c) }
	/* renew.go extend */
	:: d_step { st[c] == HELD && asked[c] < MOST(c) && round[c] == NONE -> send(c, RENEW, 7) }
	:: d_step { st[c] == HELD && round[c] == RENEW && kept[c] >= QUORUM ->      /* rules.go held.judge, renew.go extended */
		left[c] = (T > age[c] && T - age[c] > left[c] -> T - age[c] : left[c]);
		park(c) }
	:: d_step { st[c] == HELD && round[c] == RENEW && gone[c] > S - QUORUM -> finish(c) }
	:: d_step { st[c] == HELD && round[c] == RENEW -> park(c) }                /* no majority in time */
	/* A server carries out a question, and answers */
	:: atomic { pending[c] && round[c] != RENEW -> one(pending[c]); d_step {
		if
		:: round[c] == YIELD -> give(c, bid[c], s, asked[c])
		:: else -> askFor(c, bid[c], s, asked[c])
		fi;
		told(c, s);
		s = 0 } }
	:: atomic { pending[c] && round[c] == RENEW -> one(pending[c]); d_step {
		CUT(pending[c], s);
		renew(c, bid[c], s, HAS(vacant[c], s), word);
		CUT(vacant[c], s);
		if
		:: word == 1 && ageOf[s] < T -> skip                              /* held.count: it does not count yet (rule Q6) */
		:: word == 1 && ageOf[s] == T -> kept[c] = kept[c] + !HAS(isVoid[c], s); gone[c] = gone[c] + HAS(isVoid[c], s)
		:: word == 3 -> ADD(vacant[c], s); gone[c]++
		:: else -> gone[c]++
		fi;
		s = 0; word = 0 } }
	/* Copies that nobody waits for */
	:: atomic { ANY_LATE(ENTERS) -> late(ENTERS); d_step { askFor(c, b, s, 0); s = 0; b = 0 } }
	:: atomic { ANY_LATE(BEATS) -> late(BEATS); d_step { askFor(c, b, s, 0); s = 0; b = 0 } }
	:: atomic { ANY_LATE(YIELDED) -> late(YIELDED); d_step { give(c, b, s, 0); s = 0; b = 0 } }
	:: atomic { ANY_LATE(RENEWALS) -> late(RENEWALS); d_step { renew(c, b, s, 0, word); s = 0; b = 0; word = 0 } }
	:: atomic { ANY_LATE(LEAVES) -> late(LEAVES); d_step { leave(c, b, s); s = 0; b = 0 } }
	/* A vote that was published: waiting.go noticed, rules.go vote.noticed */
	:: atomic { nempty(notice[AT(c, 0)]) || nempty(notice[AT(c, 1)]) || nempty(notice[AT(c, 2)]) ->
		if
		:: nempty(notice[AT(c, 0)]) -> s = 0
		:: nempty(notice[AT(c, 1)]) -> s = 1
		:: nempty(notice[AT(c, 2)]) -> s = 2
		fi;
		d_step {
		notice[AT(c, s)]?b, no, word;
		if
		:: b != bid[c] || st[c] == IDLE -> ADD(LATE(LEAVES, c, s), b)    /* nobody waits for it */
		:: else ->
			if
			:: no != answered[AT(c, s)] -> skip                       /* stale: only a heartbeat can tell (rule Q3) */
			:: st[c] != TRYING || HAS(isVoid[c], s) || round[c] == YIELD && HAS(pending[c], s) || answered[AT(c, s)] == 0 -> skip
			:: else -> counts[AT(c, s)] = wouldCount[AT(c, s)]; toldAge[AT(c, s)] = word
			fi
		fi;
		s = 0; b = 0; no = 0; word = 0 } }
	od
}

/*** Time, and servers that are restarted empty ***/

/* restart: it is empty, and born now */
inline restart(s) {
	free(s);
	place[AT(0, s)] = 0; place[AT(1, s)] = 0; number[AT(0, s)] = 0; number[AT(1, s)] = 0; head[s] = 0;
	ageOf[s] = 0
}

active proctype world() {
	byte c, s;
	do
	:: d_step {
		s = 0;
		do
		:: s < S ->
			ageOf[s] = (ageOf[s] < T -> ageOf[s] + 1 : T);
			if
			:: voter[s] != NOBODY ->
				ttl[s]--;
				if
				:: ttl[s] == 0 -> free(s)
				:: else
				fi
			:: else
			fi;
			s++
		:: else -> break
		od;
		c = 0;
		do
		:: c < N ->
			s = 0;
			do
			:: s < S ->
				counts[AT(c, s)] = (counts[AT(c, s)] > 0 -> counts[AT(c, s)] - 1 : 0);
				wouldCount[AT(c, s)] = (wouldCount[AT(c, s)] > 0 -> wouldCount[AT(c, s)] - 1 : 0);
				toldAge[AT(c, s)] = (answered[AT(c, s)] > 0 && toldAge[AT(c, s)] < T -> toldAge[AT(c, s)] + 1 : toldAge[AT(c, s)]);
				s++
			:: else -> break
			od;
			age[c] = (round[c] != NONE && age[c] < T -> age[c] + 1 : age[c]);
			left[c] = (left[c] > 0 -> left[c] - 1 : 0);
			if
			:: st[c] == HELD && left[c] == 0 -> finish(c)              /* judge(over): a success that comes later does not count */
			:: else
			fi;
			c++
		:: else -> break
		od;
		c = 0; s = 0 }
#if RESTARTS > 0
	/* P2 of rules.go: fewer than a majority lose their data within the longest TTL */
	:: d_step { restarts < RESTARTS && ageOf[0] == T && ageOf[1] == T && ageOf[2] == T -> restarts++; restart(0) }
	:: d_step { restarts < RESTARTS && ageOf[0] == T && ageOf[1] == T && ageOf[2] == T -> restarts++; restart(1) }
	:: d_step { restarts < RESTARTS && ageOf[0] == T && ageOf[1] == T && ageOf[2] == T -> restarts++; restart(2) }
#endif
	od
}
