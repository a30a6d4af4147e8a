package doctor

import (
	"fmt"
	"strings"
	"time"
)

// maxRollUpLag is the age of a batch from which roll-ups count as behind.
const maxRollUpLag = 5 * time.Minute

// clicks checks what keeps figures of clicks from being complete.
func (d *examiner) clicks() {
	ctx, cancel := d.bounded()
	defer cancel()
	state, err := d.store.ClickCheckup(ctx)
	if err != nil {
		d.fails("click logs", err)
		return
	}
	if len(state.Logs) == 0 {
		d.ok("click logs", "every edge ships its clicks from a directory")
	}
	advice := map[string]string{
		"waiting":   "start the edge again, or attach its directory to another edge; if its disk will not return, run control clicks forget SLOT",
		"in memory": "set EDGE_CLICKS_DIR: a crash of this edge loses up to a second of clicks",
		"off":       "set EDGE_CLICKS=on: the clicks of this edge are not counted",
	}
	for _, log := range state.Logs {
		d.add(Warning, "click logs", fmt.Sprintf("slot %s is %s since %s", log.Slot, log.State, log.Since.UTC().Format(time.RFC3339)), advice[log.State])
	}
	if found := fmt.Sprintf("the oldest batch waits for %s, asOf is %s old", state.RollUpLag.Round(time.Second), state.AsOfAge.Round(time.Second)); state.RollUpLag > maxRollUpLag {
		d.add(Warning, "click roll-up", found, "check that a control runs, and its log lines about roll-ups")
	} else {
		d.ok("click roll-up", found)
	}
	switch {
	case state.OverdueSalts > 0:
		d.add(Error, "click salts", fmt.Sprintf("%d salts should have been deleted", state.OverdueSalts), "check that a control runs, and its log lines about housekeeping of clicks")
	case state.Edges && !state.HasSalt:
		d.add(Warning, "click salts", "today has none, so clicks have no visitors", "check that the edges can execute click_salt(date)")
	default:
		d.ok("click salts", "none is overdue")
	}
	if len(state.MissingPartitions) > 0 {
		d.add(Warning, "click partitions", "missing for the next days: "+strings.Join(state.MissingPartitions, ", "), "run a control: it creates them; until then rows go into the default partitions")
	} else {
		d.ok("click partitions", "exist for the next days")
	}
}
