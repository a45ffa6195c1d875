package doctor

import (
	"context"
	"strings"
)

// kubernetes says what no client can see. Missing rights and an API server without Leases have been found by opening.
func kubernetes(_ context.Context, p *patient) {
	p.judge(strings.HasPrefix(p.url.Host, "kube-"), Warning, Finding{
		Subject: "namespace", What: "locks are Leases in the namespace " + p.url.Host,
		Means: "components of the cluster have theirs there: rights to locks are rights to these", Mend: "another namespace, while no process works",
	})
	p.fine("restore", "not seen by a client: a cluster that is restored from a backup forgets the locks since, and gives their fences again unless it is restored with --bump-revision")
}
