package main

import (
	"cmp"
	"fmt"
)

// model says which sizes of the protocol were searched whole, which mistakes were found, and what the models do not have.
func (w *writer) model(m *model) {
	w.say("%s", modelHead)
	if m == nil {
		w.say("**Missing:** no result of `make model`.\n")
		return
	}
	caught := 0
	for _, one := range m.Mistakes {
		if one.CaughtBy != "" {
			caught++
		}
	}
	w.say("%d instances of %s, `%s`, and %d mistakes: %d are caught.\n", len(m.Instances), day(m.Began), short(m.Commit), len(m.Mistakes), caught)
	w.header("Instance", "What it has", "Model", "Asked", "States", "Depth", "Seconds", "Verdict")
	for _, i := range m.Instances {
		asked, verdict := "safety", "holds"
		if i.Live {
			asked = "safety, and that who waits is served"
		}
		if i.Broken != "" {
			verdict = "**breaks " + i.Broken + "**"
		}
		w.row(escape(i.Name), escape(i.About), fmt.Sprintf("[%s](../test/model/%[1]s)", i.File), asked, number(i.States), number(i.Depth), fmt.Sprintf("%.0f", i.Seconds), verdict)
	}
	w.say("%s", modelProperties)
	w.header("Rule left out", "It is in", "Instance", "Caught by", "Name")
	for _, one := range m.Mistakes {
		w.row(escape(one.Rule), "`"+one.Where+"`", escape(one.In), cmp.Or(escape(one.CaughtBy), "**not found**"), "`"+one.Name+"`")
	}
	w.say("%s", modelLeavesOut)
}

const modelHead = `## The protocol, searched whole

[test/model](../test/model/doc.go) has the protocols of Redis and Redlock as models, whose steps name the lines of the scripts and functions that they
stand for. The checker spin follows every order of these steps. Requests, answers and messages may be late or lost, and a request may be carried
out a second time. So an instance that holds holds in all runs of its size.
` + "`make model`" + ` runs all, and ` + "`make model MODEL='^late copies$'`" + ` one, or one mistake by its name.
`

const modelProperties = `
What has to hold. The instances of quorum.pml are asked the first one alone:

- **oneHolder:** never do two instances believe that they hold the lock.
- **fencesGrow:** the fence of each holder is larger than those of all before it. It is asked of the first four.
- **releasedStays:** a request whose release was answered is granted nothing any more. If its lease was overwritten by the next enter, that holds until
  the lease of that one expires. Then a late copy may cost a claim window.
- **deadClaimEnds:** a grant that its instance has not read costs the others the claim window. If it was claimed, it costs T. Each late copy may cost that again.
- **inOrder:** the lock goes to the first who waits, if any does.
- **placesStay:** without faults, and if only messages are lost, no instance that lives loses its place.
- **served:** who waits is served at last, in fair runs: whoever can go on for ever does at last.

In each of these one rule of the code is left out of the model, and a property has to break:
`

const modelLeavesOut = `
The models are written by hand. No program compares them with the code. They leave out:

- **Sizes.** No instance that is asked for safety has more than three processes, two requests of each, or two copies of one request.
- **Clocks.** Time is ticks, and all clocks run alike. Drift, clocks that are set, and suspended machines are left out.
- **Redis:** readers, permits, downgrades, NoWait, limits of the queue, foreign keys and gaps, Break, detached leases, clusters, replicas, servers that lose
  their data, and what an Enter is told about the lease before it.
- **Redlock:** fences, readers, Break, detached leases, prev, clocks that leap, messages that overtake an answer, TTLs that differ, more than one restart,
  renewals beside a restart, and that who waits is served. An instance has one request, which asks each server three times at most.
- **Processes:** what callers of one process do to each other. [Other tests](#teeth) have that.
`
