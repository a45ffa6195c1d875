package simulated

// Mistakes of the simulated services, which schedules must find.
const (
	flawExcludes = "no process excludes another"
	flawPermits  = "one permit too many"
	flawOrder    = "a place goes to the end of the queue"
	flawGhost    = "what a request without an answer has brought stays"
	flawExpires  = "a lease ends at the service before its time"
	flawRelease  = "a release is answered and not carried out"
	flawFences   = "all callers of a lease have one fence"
	flawLeave    = "leaving is answered and not carried out"

	flawPutCompares    = "a document is written over any other"
	flawDeleteCompares = "a document is deleted whatever it says"
	flawConflict       = "a write that has lost is answered as if it had won"
	flawForgets        = "a document is forgotten before its time"
)

// isOfDocuments reports whether a flaw is one of the store of documents.
func isOfDocuments(flaw string) bool {
	switch flaw {
	case flawPutCompares, flawDeleteCompares, flawConflict, flawForgets:
		return true
	}
	return false
}
