// Package driver is the client half of a lock service: what becomes of a request, from before it is sent until the service has
// answered that nothing of it is left. A backend is a Driver, which speaks to one service, under a Backend of this package,
// which is the distributed.Backend. The cut is that of database/sql.
//
//	            Enter                                       Look, or what the service pushes
//	              │                                                    │
//	Backend   asking ── Granted ────────────▶ held ◀── Granted ────────┤      little is left of it: claimed first
//	              └──── Queued ──▶ waiting ────────────────────────────┘
//	                                  │
//	          asking, waiting, held ──┴── released, left, lost, unread ──▶ ending ──▶ dropping ──▶ over
//	          held, ending ── Prev of an Enter ──▶ adopted ──▶ over
//
// The Backend owns the states, who wins each race, the channel of a place, the Watcher, and what is to be dropped, with its repeats.
// It also says when to look, to renew (Driver's Renew) and to fetch fences, which NextFence begins when half of a block is used, and has the
// observers and Close. The Driver owns names and tokens on the wire, the one effect of a repeated request, batches as its service likes them,
// sessions, connections and inspection. No method of a Driver is called with a mutex held, but for ClaimTime. Those of a Session are.
// docs/design.md has the rules that comments name (K3, C4).
//
// # States
//
// An Attempt is one request for a lock. Its mutex guards its state, and the channel of its place is sent to and closed only under
// that mutex. So the one who takes the mutex first wins, and the others find what it has left:
//
//	from              event                              to        what follows
//	(none)            Enter                              asking    Prepare, then the request
//	asking            granted                            held      the lease is returned; one that is pushed is kept for the answer to Enter
//	asking            queued                             waiting   the place is returned
//	asking            refused                            over      nothing of it is left
//	asking            gone, and then the answer          ending    the place is lost, or the lease ends
//	asking            error, or cut off                  ending    perhaps it was carried out
//	asking            Close, or the session is over      cut off   whatever Enter learns afterwards is dropped
//	asking            its caller goes, Settings.Apart    cut off   the same
//	waiting           granted                            held      the lease lies in the channel
//	waiting           granted, and little is left        claiming  Renew, until it is answered
//	claiming          renewed                            held      the lease lies in the channel
//	waiting, claiming gone, Close, the session is over   ending    the channel is closed
//	waiting, claiming Leave                              ending    waits for the answer
//	held              Renewed                            held      it lasts for Lasts from when that was sent
//	held              Unrenewed, or no answer            held      it is not healthy, and is tried again until it expires
//	held              Release, StartRelease              ending    the first decides whether the lease was held
//	held              lost, expired                      ending    the service may still have it
//	held, unread      Leave, Close                       ending    whoever takes it out of the channel owns it
//	held, ending      Prev of an Enter                   adopted   either that Enter removes it, or a Drop does
//	held              Detach                             adopted   either the Transfer ends it, or a Drop does: see Transferer
//	ending            it is about to be sent             dropping  no Enter adopts it any more
//	adopted           Enter knows what became of it      over      Release and the Watcher get that answer
//	adopted           Enter does not know                dropping  a Drop says what is left
//	dropping          answered                           over      the first answer counts
//	dropping          Prev of an Enter, Settings.Twice   adopted   the first answer counts, but for a Drop that has found nothing
//	ending, dropping  the session is over                over      nothing of it is left
//
// A grant that lies in the channel is unread. A claim is a Renew before there is a lease: of a pushed grant (claiming), or inside Enter. A Claimer
// has each grant of an Enter claimed so, with much time left, too.
//
// In a lane without a Session the service forgets by itself what is gone, lost or was not dropped in time. So where the table says ending, that
// is over there.
//
// A lease ends by itself as well: keepalive.Lease decides between lost and finished (rule K3), and a release that finds it lost
// answers ErrLeaseLost, whatever the Drop finds.
//
// # Lanes
//
// Attempts of one session, or of one server, share a Lane. What is to be dropped and looked at in one lane is sent together. It does
// not wait for another lane, which may be silent. Sessions are found, shared, bounded and ended by type Sessions. A Driver gives what
// opens, keeps alive and ends one at its service (type Living). A session vouches for all leases of its lane (type Session), or they
// are renewed one by one (type Renewer).
package driver
