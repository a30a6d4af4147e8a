// Package doctor checks a deployment: settings, Postgres as the role of control sees it, Redis, and every edge. Each finding says what to do.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/postgres"
	"deeplink/shared/settings"
)

// Status is the result of a check.
type Status string

const (
	OK      Status = "ok"
	Warning Status = "warning"
	Error   Status = "error"
)

// Finding is the result of one check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	// Do says what the operator should do, empty when nothing.
	Do string `json:"do,omitempty"`
}

// Examination is the result of all checks.
type Examination struct {
	Checks   []Finding `json:"checks"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
}

// queryTimeout bounds each query.
const queryTimeout = 5 * time.Second

// Options are the settings of control serve that the checks need.
type Options struct {
	LinkBaseURL settings.LinkBase
	RedisURL    settings.Redis
	// Connections is how many connections to Postgres one control takes.
	Connections int
	Console     Console
}

// examiner makes the checks of one deployment.
type examiner struct {
	ctx     context.Context
	options Options
	store   *store.Store
	server  store.Server
	found   []Finding
}

// Examine makes all checks. It changes nothing, except that a control records a sign-in that is never completed. Checks that need Postgres are missing when Postgres cannot be reached.
func Examine(ctx context.Context, s *store.Store, options Options) Examination {
	d := &examiner{ctx: ctx, options: options, store: s}
	d.settings()
	reached := d.postgres()
	if reached {
		d.clock()
		d.migrations()
		d.privileges()
		d.indexes()
		d.triggers()
		d.partitions()
		d.auditPartitions()
		d.idempotencyKeys()
		d.clicks()
		d.transactions()
		d.edges()
	}
	d.redis()
	d.console(reached)
	result := Examination{Checks: d.found}
	for _, f := range d.found {
		switch f.Status {
		case Error:
			result.Errors++
		case Warning:
			result.Warnings++
		}
	}
	return result
}

func (d *examiner) add(status Status, check, found, do string) {
	d.found = append(d.found, Finding{check, status, found, do})
}

func (d *examiner) ok(check, found string) { d.add(OK, check, found, "") }

// fails adds the error of a check that was not possible.
func (d *examiner) fails(check string, err error) {
	d.add(Error, check, err.Error(), "check that Postgres accepts queries of this role")
}

func (d *examiner) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, queryTimeout)
}

// Text returns each check on a line.
func (e Examination) Text() string {
	var text strings.Builder
	for _, f := range e.Checks {
		line := fmt.Sprintf("%-8s %-19s %s", f.Status, f.Check, f.Found)
		if f.Do != "" {
			line += ": " + f.Do
		}
		text.WriteString(strings.ReplaceAll(line, "\n", " ") + "\n")
	}
	return text.String()
}

// settings checks for values that are valid but seldom intended. Invalid settings have ended the program before.
func (d *examiner) settings() {
	base := string(d.options.LinkBaseURL)
	host, _, _ := strings.Cut(d.options.LinkBaseURL.Authority(), ":")
	if strings.HasPrefix(base, "http://") && host != "localhost" && !strings.HasPrefix(host, "127.") {
		d.add(Warning, "settings", "LINK_BASE_URL "+base+" has no TLS", "use https://: browsers warn about http, and apps do not open such links")
		return
	}
	d.ok("settings", "valid; short URLs begin with "+base)
}

// How far the clocks of control and Postgres may differ. Session tokens have a tolerance of 5 seconds.
const (
	clockWarning = time.Second
	clockError   = 5 * time.Second
)

func (d *examiner) clock() {
	ctx, cancel := d.bounded()
	defer cancel()
	before := time.Now()
	now, err := d.store.Clock(ctx)
	after := time.Now()
	if err != nil {
		d.fails("clock", err)
		return
	}
	d.found = append(d.found, compareClocks(before, now, after))
}

// compareClocks compares the clock of Postgres, which showed now, with this machine's clock before and after the query.
func compareClocks(before, now, after time.Time) Finding {
	var off time.Duration
	switch {
	case now.Before(before):
		off = before.Sub(now)
	case now.After(after):
		off = now.Sub(after)
	}
	f := Finding{"clock", OK, fmt.Sprintf("the clocks of this machine and of Postgres differ by %v at most", max(off+after.Sub(before), time.Millisecond).Round(time.Millisecond)), ""}
	switch {
	case off > clockError:
		f.Status = Error
	case off > clockWarning:
		f.Status = Warning
	}
	if f.Status != OK {
		f.Found = fmt.Sprintf("the clocks of this machine and of Postgres differ by %v", off.Round(time.Millisecond))
		f.Do = "synchronize both by NTP: links and session tokens expire by them"
	}
	return f
}

// oldestPostgres is the oldest version of Postgres that the tests use.
const oldestPostgres = 150000

// postgres checks the connection and the server. It reports whether queries are possible.
func (d *examiner) postgres() bool {
	ctx, cancel := d.bounded()
	defer cancel()
	began := time.Now()
	var err error
	if d.server, err = d.store.Server(ctx); err != nil {
		d.add(Error, "postgres", err.Error(), connectionAdvice(err))
		return false
	}
	d.ok("postgres", fmt.Sprintf("connected as %s in %v", d.server.Role, time.Since(began).Round(time.Millisecond)))
	d.primary()
	d.durability()
	d.connections()
	return true
}

// connectionAdvice returns what to do when the connection fails.
func connectionAdvice(err error) string {
	switch postgres.Code(err) {
	case "28P01", "28000":
		return "set the role's password to that in DATABASE_URL (deploy/logins.sql), and check pg_hba.conf"
	case "3D000":
		return "create the database that DATABASE_URL names, then run control migrate"
	case "53300":
		return "raise max_connections or the limits of role and database, or let fewer clients connect"
	case "57P03":
		return "wait until Postgres has started"
	case "42501":
		return "grant connect on the database, and membership in deeplink_control, to the role"
	}
	return "check host and port in DATABASE_URL, that Postgres runs, and the network between them"
}

func (d *examiner) primary() {
	switch {
	case d.server.InRecovery:
		d.add(Error, "primary", "this is a standby", "name the primary in DATABASE_URL, or all hosts and target_session_attrs=read-write")
	case d.server.ReadOnly:
		d.add(Error, "primary", "transactions are read only", "check default_transaction_read_only of server, database and role")
	default:
		d.ok("primary", "it accepts writes")
	}
	if d.server.VersionNumber < oldestPostgres {
		d.add(Error, "postgres version", d.server.Version, "upgrade: 15 or newer is needed")
	} else {
		d.ok("postgres version", d.server.Version)
	}
}

// durability checks that Postgres keeps what is committed.
func (d *examiner) durability() {
	switch d.server.SynchronousCommit {
	case "off", "local":
		d.add(Warning, "synchronous_commit", "it is "+d.server.SynchronousCommit+" by default; control and edges override it for their connections",
			"set it to on, or a crash of the server loses changes made by hand")
	default:
		d.ok("synchronous_commit", d.server.SynchronousCommit)
	}
	if d.server.Fsync {
		d.ok("fsync", "on")
	} else {
		d.add(Warning, "fsync", "off: a power failure loses what was acknowledged", "set it to on, unless this is a test")
	}
}

// connections compares the free connections with those that one control takes.
func (d *examiner) connections() {
	needed := d.options.Connections
	found := fmt.Sprintf("%d of %d are free; a control takes up to %d", d.server.Free, d.server.Limit, needed)
	do := "raise max_connections, or the limit of role or database, or lower CONTROL_DATABASE_CONNECTIONS"
	switch {
	case d.server.Limit < needed:
		d.add(Error, "connections", found, do)
	case d.server.Free < needed:
		d.add(Warning, "connections", found, do)
	default:
		d.ok("connections", found)
	}
}

// list checks that a list is empty.
func (d *examiner) list(check string, read func(context.Context) ([]string, error), fine, bad, do string) {
	ctx, cancel := d.bounded()
	defer cancel()
	switch names, err := read(ctx); {
	case err != nil:
		d.fails(check, err)
	case len(names) > 0:
		d.add(Error, check, bad+" "+strings.Join(names, ", "), do)
	default:
		d.ok(check, fine)
	}
}
