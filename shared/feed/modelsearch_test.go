//go:build !race

package feed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// reached is a state that search has found, with the step that led to it.
type reached struct {
	state
	from int // index of the state before; -1 for a first one
	step string
}

// search walks every reachable state and returns the shortest story that ends in a violation, or nil.
func (r rules) search() (story []string, states int) {
	all := []reached{
		{state{lease: noLease}, -1, ""},
		{state{restored: true, lost: !r.rowMissed, entryOld: true}, -1, ""},
	}
	seen := map[state]struct{}{all[0].state: {}, all[1].state: {}}
	for i := 0; i < len(all); i++ {
		for _, next := range r.steps(all[i].state) {
			if next.bad {
				return append(tell(all, i), fmt.Sprintf("tick %d: %s", all[i].now, next.name)), len(all)
			}
			if _, known := seen[next.to]; !known {
				seen[next.to] = struct{}{}
				all = append(all, reached{next.to, i, next.name})
			}
		}
	}
	return nil, len(all)
}

// tell returns the steps that led to a state, in their order.
func tell(all []reached, to int) (story []string) {
	for i := to; all[i].from >= 0; i = all[i].from {
		story = append(story, fmt.Sprintf("tick %d: %s", all[all[i].from].now, all[i].step))
	}
	slices.Reverse(story)
	return story
}

func TestModelHoldsInEveryReachableState(t *testing.T) {
	t.Parallel()
	story, states := rules{}.search()
	if story != nil {
		t.Fatalf("the protocol is broken:\n%s", strings.Join(story, "\n"))
	}
	if states < 10_000 {
		t.Errorf("only %d states were reached: the model no longer moves", states)
	}
	t.Logf("%d states, none of them a violation", states)
}

func TestModelFindsEachBrokenRule(t *testing.T) {
	t.Parallel()
	broken := []struct {
		name  string
		rules rules
	}{
		{"the lease counts from the reply", rules{leaseFromReply: true}},
		{"the lease is renewed before the changes are applied", rules{leaseBeforeApply: true}},
		{"entries carry no stamps", rules{noStamps: true}},
		{"stamps are read after the row", rules{stampAfterLoad: true}},
		{"any running load may be joined", rules{joinAnyLoad: true}},
		{"stamps before lease", rules{stampsBeforeLease: true}},
		{"stamps before lease, and a lease that started after the request is rejected", rules{stampsBeforeLease: true, laterLeaseRejected: true}},
		{"the clock is coarse", rules{coarseClock: true}},
		{"acknowledged before bumped", rules{ackBeforeBump: true}},
		{"registered after the window was read", rules{rowAfterRead: true}},
		{"deregistered before the lease was given up", rules{deregisterFirst: true}},
		{"the hint is sent before the commit", rules{hintBeforeCommit: true}},
		{"the poll asks for identities above the last", rules{pollByID: true}},
		{"control waits for the lease only, though stale answers are allowed", rules{leaseWaitOnly: true}},
		{"control reads edges before the commit", rules{readRowsBeforeCommit: true}},
		{"an edge trusts its window across a restore", rules{windowTrusted: true}},
		{"an edge calls applied what it saw before a restore", rules{appliedTold: true}},
		{"control does not wait for an edge whose row a restore took away", rules{rowMissed: true}},
	}
	for _, variant := range broken {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			story, states := variant.rules.search()
			if story == nil {
				t.Fatalf("not found to be a violation in %d states", states)
			}
			t.Logf("found after %d states:\n%s", states, strings.Join(story, "\n"))
		})
	}
}
