package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// longTransaction is the age of an open transaction that vacuum should no longer wait for.
const longTransaction = time.Hour

func (d *examiner) indexes() {
	d.list("indexes", d.store.BadIndexes, "all exist and are valid", "missing or invalid:",
		"as the owner: reindex index concurrently, or create it as its migration does")
}

func (d *examiner) triggers() {
	d.list("triggers", d.store.DisabledTriggers, "those that record changes for the edges are enabled", "disabled:",
		"as the owner: alter table ... enable always trigger, then restart the edges: they may serve old versions")
}

func (d *examiner) partitions() {
	ctx, cancel := d.bounded()
	defer cancel()
	days, err := d.store.MissingEventPartitions(ctx)
	switch {
	case err != nil:
		d.fails("event partitions", err)
	case len(days) > 1:
		d.add(Error, "event partitions", "missing for "+strings.Join(days, ", "), "check that a control serves, and its log for failed purges")
	case len(days) == 1:
		// Midnight may have passed a moment ago.
		d.add(Warning, "event partitions", "missing for "+days[0], "check again in some minutes")
	default:
		d.ok("event partitions", "created for a week ahead")
	}
}

func (d *examiner) auditPartitions() {
	const check = "audit partitions"
	ctx, cancel := d.bounded()
	defer cancel()
	months, err := d.store.MissingAuditPartitions(ctx)
	switch {
	case err != nil:
		d.fails(check, err)
	case len(months) > 1:
		d.add(Error, check, "missing for "+strings.Join(months, ", "), "check that a control serves, and its log for failed purges")
	case len(months) == 1:
		// Midnight may have passed a moment ago.
		d.add(Warning, check, "missing for "+months[0], "check again in some minutes")
	default:
		d.ok(check, "created for half a year ahead")
	}
}

// overduePurge is how late the purge of a stored response may be. It runs every minute.
const overduePurge = time.Hour

// idempotencyKeys checks that control deletes stored responses that no longer count.
func (d *examiner) idempotencyKeys() {
	const check = "idempotency keys"
	ctx, cancel := d.bounded()
	defer cancel()
	overdue, err := d.store.IdempotencyPurgeOverdue(ctx)
	switch {
	case err != nil:
		d.fails(check, err)
	case overdue > overduePurge:
		d.add(Warning, check, fmt.Sprintf("the purge of stored responses is %v overdue", overdue.Round(time.Minute)),
			"check that a control serves, and its log for failed purges")
	default:
		d.ok(check, "none is stored for much longer than a day")
	}
}

// transactions looks for long transactions in all databases of the server.
func (d *examiner) transactions() {
	const check = "transactions"
	ctx, cancel := d.bounded()
	defer cancel()
	long, err := d.store.OpenTransactions(ctx, longTransaction)
	if err != nil {
		d.fails(check, err)
		return
	}
	hidden, err := d.store.HiddenSessions(ctx)
	if err != nil {
		d.fails(check, err)
		return
	}
	var found []string
	for _, t := range long {
		if t.PID == 0 {
			found = append(found, fmt.Sprintf("%s by %s in database %s, for %v", t.State, t.Role, t.Database, t.Age.Round(time.Minute)))
			continue
		}
		found = append(found, fmt.Sprintf("pid %d (%s, database %s, application %q, %s), for %v", t.PID, t.Role, t.Database, t.Application, t.State, t.Age.Round(time.Minute)))
	}
	switch {
	case len(found) > 0:
		d.add(Warning, check, "open for more than an hour: "+some(found),
			"end it (select pg_terminate_backend(PID); rollback prepared for a prepared one): until then vacuum removes nothing in any database of the server, and edges read more with each poll")
	case hidden > 0:
		d.add(Warning, check, fmt.Sprintf("no visible one has been open for an hour, but %d sessions of other roles are hidden", hidden),
			"grant pg_read_all_stats to the owner of the schema")
	default:
		d.ok(check, "none has been open for an hour")
	}
}

func (d *examiner) privileges() {
	ctx, cancel := d.bounded()
	defer cancel()
	missing, excess, err := d.store.Privileges(ctx)
	if err != nil {
		d.fails("grants", err)
		return
	}
	excess = append(slices.Clone(d.server.Powers), excess...)
	switch {
	case len(missing) > 0:
		d.add(Error, "grants", "the role lacks "+some(missing), "run control migrate, and grant deeplink_control to the role (deploy/logins.sql)")
	case len(excess) > 0:
		d.add(Warning, "grants", "the role can do more than control needs: "+some(excess), "use a login with the rights of deeplink_control only (deploy/logins.sql)")
	default:
		d.ok("grants", "exactly what control needs")
	}
}

// some joins the first few of a list that may be long.
func some(list []string) string {
	const few = 8
	if len(list) <= few {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(slices.Clone(list[:few]), ", "), len(list)-few)
}
