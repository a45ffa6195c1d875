/*
 * The grant protocol of distributed/redislock: one lock on one server, and instances that ask for it.
 *
 * How to read it. A `proctype` is a process. Its `do ... od` is a list of steps `:: d_step { guard -> ... }`: any step whose guard holds may come
 * next, and each takes place at once, as a Lua script does, or Go code under the mutex of an attempt. spin follows every order of steps. What
 * is asserted has to hold in all of them. Each step names the function that it stands for.
 *
 * Time. A tick is when all clocks go on by one. Any number of ticks may pass before a request arrives, or an answer, or a message. Each of
 * them may be lost as well, because a step that may be taken need not be.
 *
 * Numbers. An instance's requests (attempts, in the code) are 1, 2, ... K. 0 is none. A set of requests is a byte, with a bit for each.
 *
 * -DMISTAKE_x leaves out one rule of the code. instances_test.go lists them, with the instances.
 */
#ifndef N
#define N 2 /* instances */
#endif
#ifndef K
#define K 2 /* requests of the first */
#endif
#ifndef OTHERS
#define OTHERS K /* requests of each of the others */
#endif
#ifndef W
#define W 1 /* ticks of a claim window (rule R5) */
#endif
#define T (2*W)         /* ticks of a lease that was claimed */
#define M 1 /* messages on their way to an instance. A further one is lost */
#define NOBODY N
#define MOST(c) (c == 0 -> K : OTHERS)

#define HAS(set, a) (((set) >> (a)) & 1)
#define ADD(set, a) set = set | (1 << (a))
#define CUT(set, a) set = set & ~(1 << (a))

mtype = { IDLE, ASKING, WAITING, CLAIMING, UNREAD, HELD, LEAVING, DEAD };        /* an instance: driver/attempt.go, state */
mtype = { NONE, ENTER, BEAT, RENEW, LEAVE, RELEASE };                            /* a question, by the script that answers it */
mtype = { UNANSWERED, LEASE, PLACE, OLD, GONE, KEPT, LOST, RELEASED, OTHER };    /* what that says */

/* ONLY_HOLDERS: a mistake that breaks more than one property is to break that one. */
#ifdef ONLY_HOLDERS
#define ASSERT(property) skip
#else
#define ASSERT(property) assert(property)
#endif

/* The server: what common.lua lists as keys. Scripts own it. */
byte owner = NOBODY, ownerAtt, ttl; /* the lock: who has it, by which request, and for how many ticks. NOBODY: it is missing */
byte ownerFence, lastFence;         /* its fence, and the last one that was reserved */
byte queue[N], queued;              /* who waits, in order, and how many */
byte placeOf[N];                    /* the request of the one that waits */
byte done[N];                       /* its latest request that has ended */

/* The instances. Each owns its element. */
mtype st[N] = IDLE;
byte att[N];            /* its latest request */
byte prevOf[N * K + N]; /* which request's lease each request releases first */
byte left[N];           /* ticks for which its lease is valid, as it counts them */
byte fence[N];          /* of its lease */
byte since[N];          /* ticks since the question that was last answered with a place was sent; before that, since the request began */
byte early[N];          /* the fence of a grant that was pushed before the enter was answered */
bit tried[N];           /* claim.tried: the enter was sent twice */
bit sole[N];            /* claim.sole: no copy of the enter can come late */

/* The network. */
mtype ask[N] = NONE;          /* the question under way, about att */
mtype answer[N] = UNANSWERED;
byte answerFence[N];
byte age[N];                  /* ticks since it was sent */
byte lateEnter[N], lateBeat[N], lateRenew[N], lateLeave[N]; /* copies that nobody waits for. They may still be carried out, once */
chan message[N] = [M] of { byte, byte }; /* grants that were published: request and fence */

/* What is asserted. These are always 1. */
bit oneHolder = 1;      /* never do two instances believe that they hold the lock */
bit fencesGrow = 1;     /* each holder's fence is larger than all before it */
bit releasedStays = 1;  /* a request whose release was answered is granted nothing any more */
bit inOrder = 1;        /* the lock goes to the first who waits, if any does */
bit placesStay = 1;     /* LIVE: no instance that lives loses its place */
bit deadClaimEnds = 1;  /* a grant that nobody has read costs others a window, and a claimed one T */

byte released[N];       /* those requests */
byte overwritten[N];    /* those whose lease a later enter has overwritten without a note: until that one's has expired (enter.lua, the usual case) */
byte highest;           /* fence of a holder so far */
byte unread;            /* ticks for which the owner's grant was not read, since its instance's last question was carried out */
bit claimed, hasRead;   /* the owner has renewed, its instance has read the grant */
byte crashes, losses;   /* so far */
byte kept[N];           /* of the instances that LIVE is about: ticks for which this one has held; waiting: it has asked in this tick */

hidden byte i, head, p, ours, again; /* of one step */

#ifdef LIVE
/* Without faults the network and the callers are quicker than a tick: it comes when nobody has anything to do, places have sent their
   heartbeats, and leases their renewals. Nobody holds for longer than two ticks. */
#define LIVES 1
#define BEATEN(c) kept[c]
#define DUE(c) (ask[c] != NONE || st[c] != DEAD && len(message[c]) > 0 || st[c] == UNREAD || st[c] == LEAVING || st[c] == WAITING && !kept[c] || \
	st[c] == HELD && (left[c] < T || kept[c] >= 2))
#else
#define LIVES 0
#define BEATEN(c) 0
#define DUE(c) 0
#endif

/*** The server's scripts ***/

/* setOwner (queue.lua), and the SET of enter.lua: the lock with a window, and with the next fence (nextfence in common.lua). */
inline setOwner(c, a) {
	releasedStays = !HAS(released[c] | overwritten[c], a);
	ASSERT(releasedStays);
	inOrder = queued == 0 || queue[0] == c;
	ASSERT(inOrder);
	owner = c; ownerAtt = a;
#ifdef MISTAKE_GRANT_LASTS_T
	ttl = T;
#else
	ttl = W;
#endif
#if defined(FENCES) && !defined(MISTAKE_FENCE_STAYS)
	lastFence++;
#endif
	ownerFence = lastFence;
	claimed = 0; hasRead = 0; unread = 0
}

inline noOwner() { owner = NOBODY; ownerAtt = 0; ttl = 0; ownerFence = 0; claimed = 0; hasRead = 0; unread = 0 }

/* removeWaiter (queue.lua) */
inline dequeue(c) {
	placeOf[c] = 0;
	i = 0;
	do
	:: i < queued && queue[i] != c -> i++
	:: else -> break
	od;
	do
	:: i + 1 < queued -> queue[i] = queue[i + 1]; i++
	:: else -> break
	od;
	queued--;
	queue[queued] = 0;
	i = 0
}

/* pop and announce (queue.lua): the head of the queue gets the lock, and a message. A full channel loses it. */
inline pop() {
	if
	:: queued == 0 -> noOwner()
	:: else ->
		head = queue[0];
		setOwner(head, placeOf[head]);
		if
		:: nfull(message[head]) -> message[head]!ownerAtt, ownerFence
		:: full(message[head]) -> skip
		fi;
		dequeue(head)
	fi
}

/* noteEnded (common.lua) */
inline note(c, a) {
	if
	:: done[c] < (a) -> done[c] = a
	:: else
	fi
}

/* PEXPIRE with GT: a repeat does not shorten what was claimed. */
inline extendToWindow() {
#ifdef MISTAKE_REPEAT_SHORTENS
	ttl = W;
#else
	ttl = (ttl > W -> ttl : W);
#endif
	unread = 0
}

#define IS_OWNER(c, a) (owner == (c) && ownerAtt == (a))

/* enter.lua, in the order of its lines */
inline enter(c, a, reply) {
	p = prevOf[(c) * (K + 1) + (a)];
	ours = p > 0 && IS_OWNER(c, p);
	again = placeOf[c] == (a);
	if
	:: done[c] >= (a) -> reply = OLD
	:: else ->
		if
		:: IS_OWNER(c, a) -> extendToWindow(); reply = LEASE             /* a repeat gets the first answer (rule R1) */
#ifndef MISTAKE_OLD_ENTER_IS_SERVED
		:: owner == (c) && ownerAtt > (a) -> reply = OLD                  /* laterOwns */
		:: placeOf[c] > (a) -> reply = OLD
#endif
		:: queued == 0 && (owner == NOBODY && (p == 0 || done[c] == p) || ours) ->
			setOwner(c, a); reply = LEASE                            /* the usual case, which notes nothing */
		:: else ->
			if
			:: placeOf[c] > 0 && !again -> dequeue(c)                /* moved: the place of an earlier request */
			:: else
			fi;
			if
			:: ours || p > 0 && !again -> note(c, p)                 /* prev is released, or was lost */
			:: else
			fi;
			if
			:: ours -> noOwner()
			:: else
			fi;
			if
#ifdef MISTAKE_ENTER_OVERTAKES
			:: owner == NOBODY && !again -> setOwner(c, a); reply = LEASE
#else
			:: owner == NOBODY && queued == 0 -> setOwner(c, a); reply = LEASE /* free and not state.queued */
#endif
			:: else ->
				if
				:: !again -> queue[queued] = c; placeOf[c] = a; queued++
				:: else
				fi;
				if
#ifndef MISTAKE_NOBODY_GRANTS_AFTER_EXPIRY
				:: owner == NOBODY -> pop()                      /* rule R3 */
#endif
				:: else
				fi;
				reply = (IS_OWNER(c, a) -> LEASE : PLACE)
			fi
		fi
	fi
}

/* heartbeat.lua */
inline beat(c, a, reply) {
	if
#ifndef MISTAKE_BEAT_FINDS_NO_GRANT
	:: IS_OWNER(c, a) -> extendToWindow(); reply = LEASE
#endif
	:: placeOf[c] == (a) ->
		if
#ifndef MISTAKE_NOBODY_GRANTS_AFTER_EXPIRY
		:: owner == NOBODY -> pop()                                      /* missing though somebody is queued (rule R3) */
#endif
		:: else
		fi;
		reply = (IS_OWNER(c, a) -> LEASE : PLACE)
#ifdef MISTAKE_BEAT_QUEUES
	:: !IS_OWNER(c, a) && placeOf[c] == 0 -> queue[queued] = c; placeOf[c] = a; queued++; reply = PLACE
#endif
	:: else -> reply = GONE                                                  /* it never enqueues (rule R7) */
	fi
}

/* renew.lua, which the first time claims the lease */
inline renew(c, a, reply) {
	if
#ifdef MISTAKE_RENEW_COMPARES_NOTHING
	:: owner != NOBODY ->
#else
	:: IS_OWNER(c, a) ->
#endif
		ttl = T;
		reply = KEPT;
		unread = (claimed -> unread : 0);
		claimed = 1
	:: else -> reply = LOST                                                  /* a missing lease is never created again (rule K1) */
	fi
}

/* leave.lua */
inline leave(c, a, reply) {
	if
#ifdef MISTAKE_RELEASE_COMPARES_NOTHING
	:: owner == (c) || owner != NOBODY && placeOf[c] != (a) ->
#else
	:: IS_OWNER(c, a) ->
#endif
		noOwner();
		pop()                                                            /* the next one in the same script (rule R4) */
	:: placeOf[c] == (a) ->
		dequeue(c);
		if
		:: owner == NOBODY -> pop()
		:: else
		fi
	:: else
	fi;
#ifndef MISTAKE_RELEASE_NOTES_NOTHING
	note(c, a);
#endif
	reply = RELEASED
}

/* release.lua: a lease that nobody waits for. That the request has ended is not noted. */
inline release(c, a, reply) {
	if
	:: IS_OWNER(c, a) && queued == 0 -> noOwner(); reply = RELEASED
	:: else -> reply = OTHER
	fi
}

/* which sets a to any request of a set. */
inline which(set) {
	if
	:: HAS(set, 1) -> a = 1
	:: HAS(set, 2) -> a = 2
	:: HAS(set, 3) -> a = 3
	fi
}

/* What carries an instance's questions. Copies that nobody waits for come at any time, or never. */
active [N] proctype line() {
	byte c = _pid; /* of the instance: these are the first processes */
	byte a;
	mtype ignored = UNANSWERED;
	do
	:: d_step { ask[c] == ENTER && answer[c] == UNANSWERED -> enter(c, att[c], answer[c]); answerFence[c] = (answer[c] == LEASE -> ownerFence : 0) }
	:: d_step { ask[c] == BEAT && answer[c] == UNANSWERED -> beat(c, att[c], answer[c]); answerFence[c] = (answer[c] == LEASE -> ownerFence : 0) }
	:: d_step { ask[c] == RENEW && answer[c] == UNANSWERED -> renew(c, att[c], answer[c]) }
	:: d_step { ask[c] == LEAVE && answer[c] == UNANSWERED -> leave(c, att[c], answer[c]) }
	:: d_step { ask[c] == RELEASE && answer[c] == UNANSWERED -> release(c, att[c], answer[c]) }
	:: atomic { lateEnter[c] -> which(lateEnter[c]); d_step { CUT(lateEnter[c], a); enter(c, a, ignored); ignored = UNANSWERED; a = 0 } }
	:: atomic { lateBeat[c] -> which(lateBeat[c]); d_step { CUT(lateBeat[c], a); beat(c, a, ignored); ignored = UNANSWERED; a = 0 } }
	:: atomic { lateRenew[c] -> which(lateRenew[c]); d_step { CUT(lateRenew[c], a); renew(c, a, ignored); unread = 0; ignored = UNANSWERED; a = 0 } }
	:: atomic { lateLeave[c] -> which(lateLeave[c]); d_step { CUT(lateLeave[c], a); leave(c, a, ignored); ignored = UNANSWERED; a = 0 } }
#ifdef SKIPS
	/* firstLive (queue.lua) skips a waiter whose heartbeats it misses */
	:: d_step { placeOf[c] > 0 && st[c] == DEAD -> dequeue(c) }
#endif
	od
}

/*** The instances ***/

inline settle(c) { ask[c] = NONE; answer[c] = UNANSWERED; answerFence[c] = 0; age[c] = 0 }

inline park(c) {
	if
	:: answer[c] != UNANSWERED -> skip
	:: else ->
		if
		:: ask[c] == ENTER -> ADD(lateEnter[c], att[c])
		:: ask[c] == BEAT -> ADD(lateBeat[c], att[c])
		:: ask[c] == RENEW -> ADD(lateRenew[c], att[c])
		:: ask[c] == LEAVE || ask[c] == RELEASE -> ADD(lateLeave[c], att[c])
		:: else
		fi
	fi;
	settle(c)
}

/* send puts a question under way. The one before has its answer, or is a copy that may come late (park). */
inline send(c, what) { park(c); ask[c] = what; age[c] = 0 }

/* over: nothing of the request is left here (driver/drop.go end, attempt.go forget). */
inline over(c) { park(c); st[c] = IDLE; left[c] = 0; fence[c] = 0; since[c] = 0; early[c] = 0; tried[c] = 0; kept[c] = 0 }

/* begin is Enter (driver.go, redislock/claim.go) with the lease of a request as prev, or 0. */
inline begin(c, prev) {
	park(c);
	prevOf[(c) * (K + 1) + att[c] + 1] = prev;
	att[c]++;
	st[c] = ASKING; since[c] = 0; early[c] = 0; tried[c] = 0; left[c] = 0; fence[c] = 0; kept[c] = 0;
	send(c, ENTER)
}

/* deliver is newLease (driver/lease.go): the lease of a grant is valid for the window, counted from the sending of a question so many ticks ago. */
inline deliver(c, f, ago) {
#ifdef MISTAKE_COUNTS_FROM_THE_ANSWER
	left[c] = W;
#else
	left[c] = (W > ago -> W - ago : 0);
#endif
	fence[c] = f; since[c] = 0; early[c] = 0; st[c] = UNREAD
}

/* hold is when a caller takes the lease, and looks at the clock (rule K2). */
inline hold(c) {
#ifdef MISTAKE_AN_EXPIRED_GRANT_IS_USED
	left[c] = (left[c] > 0 -> left[c] : 1);
#endif
	if
	:: left[c] == 0 -> over(c)                                               /* WasLost (driver/lease.go) */
	:: else ->
		i = 0;
		do
		:: i < N -> oneHolder = oneHolder && (i == c || st[i] != HELD); i++
		:: else -> break
		od;
		i = 0;
		assert(oneHolder);
		st[c] = HELD; tried[c] = 0; kept[c] = 0;
		if
		:: IS_OWNER(c, att[c]) -> hasRead = 1
		:: else
		fi;
#ifdef FENCES
		fencesGrow = fence[c] > highest;
		ASSERT(fencesGrow);
		highest = fence[c]
#endif
	fi
}

/* removed: the enter is answered, so the lease before it is released (Prev.Settle in lease.go). */
inline removed(c) {
	p = prevOf[c * (K + 1) + att[c]];
	if
	:: p > 0 && done[c] >= p -> ADD(released[c], p)
	:: p > 0 && done[c] < p && IS_OWNER(c, att[c]) -> ADD(overwritten[c], p)
	:: else
	fi
}

inline drop(c) { send(c, LEAVE); st[c] = LEAVING; left[c] = 0; fence[c] = 0; since[c] = 0; early[c] = 0; tried[c] = 0 }

#define GOT(c, what, said) (ask[c] == what && answer[c] == said)

active [N] proctype instance() {
	byte c = _pid - N;
	byte a, f;
	do
#ifdef LIVE
	/* Requests are counted anew when nothing is left of one, or there would be infinitely many states */
	:: d_step { st[c] == IDLE && att[c] > 0 && empty(message[c]) && !lateBeat[c] && !lateLeave[c] && !placeOf[c] && owner != c ->
		att[c] = 0; done[c] = 0; sole[c] = 0; released[c] = 0; overwritten[c] = 0 }
#endif
	/* Enter */
	:: d_step { st[c] == IDLE && att[c] < MOST(c) -> begin(c, 0) }
#ifdef PREV
	:: d_step { (st[c] == HELD || st[c] == LEAVING) && att[c] < MOST(c) -> begin(c, att[c]) } /* adopt (lease.go); a release may be under way (Settings.Twice) */
#endif
	:: d_step { st[c] == ASKING && GOT(c, ENTER, LEASE) ->                    /* claim.go Enter, attempt.go entered */
		removed(c);
		sole[c] = !tried[c] && (prevOf[c * (K + 1) + att[c]] == 0 || sole[c]);
		if
		:: age[c] < W -> deliver(c, answerFence[c], age[c]); settle(c); hold(c)
#ifndef MISTAKE_A_REPEATED_ENTER_CLAIMS_AN_OLD_GRANT
		:: age[c] >= W && tried[c] -> settle(c); drop(c)                  /* driver/backend.go claimed: it may be of a grant before */
		:: age[c] >= W && !tried[c] ->
#else
		:: else ->
#endif
			fence[c] = answerFence[c]; send(c, RENEW); st[c] = CLAIMING /* late: it is claimed first */
		fi }
	:: d_step { st[c] == ASKING && GOT(c, ENTER, PLACE) ->
		removed(c);
		sole[c] = !tried[c] && (prevOf[c * (K + 1) + att[c]] == 0 || sole[c]);
		if
		:: early[c] > 0 && since[c] < W -> deliver(c, early[c], since[c])
		:: else -> st[c] = WAITING; since[c] = age[c]; early[c] = 0
		fi;
		settle(c) }
	:: d_step { st[c] == ASKING && GOT(c, ENTER, OLD) -> drop(c) }
#ifdef TWICE
	:: d_step { c < TWICE && st[c] == ASKING && ask[c] == ENTER && !tried[c] -> send(c, ENTER); tried[c] = 1 } /* session.go ask: no answer in time */
	:: d_step { c < TWICE && st[c] == ASKING && ask[c] == ENTER && tried[c] -> drop(c) }  /* nor to the second */
#endif
	/* A place */
	:: d_step { st[c] == WAITING && ask[c] == NONE && !BEATEN(c) -> send(c, BEAT); kept[c] = LIVES }
	:: d_step { st[c] == WAITING && GOT(c, BEAT, LEASE) ->                    /* attempt.go Stands, grant */
		f = answerFence[c];
		if
		:: age[c] < W -> deliver(c, f, age[c]); settle(c)
#ifndef MISTAKE_A_REPEAT_CLAIMS_AN_OLD_GRANT
		:: age[c] >= W && tried[c] -> settle(c)                           /* heartbeat.go heartbeatAnswered: it may be of a grant before */
		:: age[c] >= W && !tried[c] ->
#else
		:: else ->
#endif
			fence[c] = f; send(c, RENEW); st[c] = CLAIMING            /* late (renew.go): it is claimed first */
		fi;
		f = 0 }
	:: d_step { st[c] == WAITING && GOT(c, BEAT, PLACE) -> since[c] = age[c]; settle(c) }
	:: d_step { st[c] == WAITING && GOT(c, BEAT, GONE) ->                     /* the caller is told, and asks anew */
#ifdef LIVE
		placesStay = 0;
		ASSERT(placesStay);
#endif
		over(c) }
#ifdef LATE
	:: d_step { (ask[c] == BEAT || ask[c] == RENEW) && st[c] != CLAIMING -> park(c) }
#else
	:: d_step { ask[c] == BEAT && answer[c] != UNANSWERED && st[c] != WAITING -> settle(c) }
#endif
#ifdef LEAVES
	:: d_step { st[c] == WAITING -> drop(c) }                                 /* Leave */
#endif
	/* A message: subscription.go OnMessage, grant, giveBack. It comes when another has overtaken it, if at all */
	:: d_step { nempty(message[c]) && st[c] != DEAD ->
		message[c]?a, f;
		if
		:: a == att[c] && st[c] == ASKING -> early[c] = f                 /* attempt.go Stands */
		:: a == att[c] && st[c] == WAITING ->
			if
#ifndef MISTAKE_TRIED
			:: tried[c] -> kept[c] = 0                                /* it may be of the place before: the server is asked */
#endif
			:: since[c] >= W -> kept[c] = 0                           /* late */
#ifdef MISTAKE_PUSHED_COUNTS_FROM_NOW
			:: else -> park(c); deliver(c, f, 0)
#else
			:: else -> park(c); deliver(c, f, since[c])
#endif
			fi
		:: (a != att[c] || st[c] == IDLE) && done[c] < a -> ADD(lateLeave[c], a) /* giveBack: nobody waits for it. One that has ended needs none */
		:: else
		fi;
		a = 0; f = 0 }
#ifdef LOSE
	:: d_step { nempty(message[c]) && losses < LOSE -> message[c]?a, f; a = 0; f = 0; losses = losses + LIVES }
#endif
	/* A lease */
	:: d_step { st[c] == UNREAD -> hold(c) }
	:: d_step { st[c] == CLAIMING && GOT(c, RENEW, KEPT) ->                   /* attempt.go claim */
		left[c] = (T > age[c] -> T - age[c] : 0); settle(c); st[c] = UNREAD }
	:: d_step { st[c] == CLAIMING && GOT(c, RENEW, LOST) -> over(c) }
#ifdef LATE
	:: d_step { st[c] == CLAIMING -> drop(c) }
#endif
#ifdef MISTAKE_UNREAD_IS_RENEWED
	:: d_step { st[c] == UNREAD && ask[c] == NONE && left[c] < T -> send(c, RENEW) }
	:: d_step { st[c] == UNREAD && GOT(c, RENEW, KEPT) -> left[c] = T - age[c]; settle(c) }
#endif
	:: d_step { st[c] == HELD && ask[c] == NONE && left[c] < T -> send(c, RENEW) } /* lease.go renew: never of one that is unread (rule C4) */
	:: d_step { st[c] == HELD && GOT(c, RENEW, KEPT) ->                       /* renew.go Renewed (rule K4) */
#ifdef MISTAKE_RENEWAL_COUNTS_FROM_THE_ANSWER
		left[c] = T;
#else
		left[c] = (T - age[c] > left[c] && age[c] < T -> T - age[c] : left[c]);
#endif
		settle(c) }
	:: d_step { st[c] == HELD && GOT(c, RENEW, LOST) -> over(c) }             /* attempt.go Gone */
	/* Its release: claim.go partingOf and Drop */
	:: d_step { st[c] == HELD -> drop(c) }
#ifdef MISTAKE_SHORT_RELEASE_OF_A_REPEAT
	:: d_step { st[c] == HELD -> drop(c); ask[c] = RELEASE }
#else
	:: d_step { st[c] == HELD && sole[c] -> drop(c); ask[c] = RELEASE }
#endif
	:: d_step { st[c] == LEAVING && answer[c] == RELEASED -> ADD(released[c], att[c]); settle(c); over(c) }
	:: d_step { st[c] == LEAVING && answer[c] == OTHER -> settle(c); send(c, LEAVE) }
#ifdef LATE
	:: d_step { st[c] == LEAVING -> send(c, LEAVE) }                          /* again, until it is answered */
	:: d_step { st[c] == LEAVING -> over(c) }                                 /* or has expired: drop.go worthwhile */
#endif
#ifdef CRASH
	:: d_step { crashes < CRASH && c > 0 && st[c] != IDLE && st[c] != DEAD -> crashes++; over(c); st[c] = DEAD }
#endif
	od
}

/*** Time ***/

#if N > 2
#define ANY_DUE (DUE(0) || DUE(1) || DUE(2))
#else
#define ANY_DUE (DUE(0) || DUE(1))
#endif

active proctype clock() {
	byte c;
	do
	:: d_step {
		!ANY_DUE ->
		c = 0;
		do
		:: c < N ->
			age[c] = (ask[c] != NONE && age[c] < T -> age[c] + 1 : age[c]);
			since[c] = ((st[c] == ASKING || st[c] == WAITING) && since[c] < W -> since[c] + 1 : since[c]);
			left[c] = (left[c] > 0 -> left[c] - 1 : 0);
#ifdef LIVE
			kept[c] = (st[c] == HELD -> kept[c] + 1 : 0);
#endif
			if
			:: st[c] == HELD && left[c] == 0 -> over(c)                /* keepalive: the lease has expired here */
			:: else
			fi;
			c++
		:: else -> break
		od;
		c = 0;
		if
		:: owner != NOBODY ->
			ttl--;
			unread = (hasRead -> 0 : unread + 1);
			deadClaimEnds = unread <= (claimed -> T : W);
			ASSERT(deadClaimEnds);
			if
			:: ttl == 0 -> overwritten[owner] = 0; noOwner()           /* Redis expires the key; the queue stays */
			:: else
			fi
		:: else
		fi }
	od
}

#ifdef LIVE
/* Who waits is served at last. It is said of the first instance, which never crashes: all run the same code. */
ltl served { [] (st[0] == WAITING -> <> (st[0] == HELD)) }
#endif
