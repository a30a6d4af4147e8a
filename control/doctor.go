package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"deeplink/control/internal/store"
	"deeplink/shared/postgres"
)

// checkStatus is how a check ended. It is part of the output.
type checkStatus string

const (
	checkOK      checkStatus = "ok"
	checkWarning checkStatus = "warning"
	checkError   checkStatus = "error"
)

// finding is the result of one check.
type finding struct {
	Check  string      `json:"check"`
	Status checkStatus `json:"status"`
	Found  string      `json:"found"`
	// Do is what is to be done, empty when nothing is.
	Do string `json:"do,omitempty"`
}

// examination is the result of control doctor.
type examination struct {
	Checks   []finding `json:"checks"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
}

type doctorCommand struct {
	serveCommand
	Format string `default:"text" enum:"text,json" help:"text: each check on a line. json: for programs."`
}

// Help implements kong's detailed help.
func (*doctorCommand) Help() string {
	return "It looks at the settings of control serve, at Postgres as the role of DATABASE_URL, at Redis, and at every edge, and changes nothing. " +
		"Each line says how a check ended (ok, warning or error), what was found and what to do. The exit code is 1 when there is an error."
}

// doctorTimeout bounds each question.
const doctorTimeout = 5 * time.Second

// doctor examines one deployment.
type doctor struct {
	task    *task
	command *doctorCommand
	store   *store.Store
	server  store.Server
	found   []finding
}

// Run implements control doctor. Settings that cannot be read have ended it before.
func (c *doctorCommand) Run(t *task) error {
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	d := &doctor{task: t, command: c, store: store.New(pool, string(c.LinkBaseURL))}
	d.settings()
	if d.postgres() {
		d.clock()
		d.migrations()
		d.privileges()
		d.indexes()
		d.triggers()
		d.partitions()
		d.edges()
	}
	d.redis()
	return d.conclude()
}

func (d *doctor) add(status checkStatus, check, found, do string) {
	d.found = append(d.found, finding{check, status, found, do})
}

func (d *doctor) ok(check, found string) { d.add(checkOK, check, found, "") }

// fails adds err as the result of a check that could not be made.
func (d *doctor) fails(check string, err error) {
	d.add(checkError, check, err.Error(), "see that Postgres answers this role")
}

func (d *doctor) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.task.ctx, doctorTimeout)
}

// conclude prints what was found.
func (d *doctor) conclude() error {
	result := examination{Checks: d.found}
	for _, f := range d.found {
		switch f.Status {
		case checkError:
			result.Errors++
		case checkWarning:
			result.Warnings++
		}
	}
	if d.command.Format == "json" {
		if err := d.task.print(result); err != nil {
			return err
		}
	} else if err := d.printLines(); err != nil {
		return err
	}
	if result.Errors > 0 {
		return fmt.Errorf("%d errors and %d warnings", result.Errors, result.Warnings)
	}
	return nil
}

func (d *doctor) printLines() error {
	for _, f := range d.found {
		line := fmt.Sprintf("%-8s %-19s %s", f.Status, f.Check, f.Found)
		if f.Do != "" {
			line += ": " + f.Do
		}
		if _, err := fmt.Fprintln(d.task.out, strings.ReplaceAll(line, "\n", " ")); err != nil {
			return err
		}
	}
	return nil
}

// settings looks at what is allowed and yet seldom meant. What is not allowed ends the program before.
func (d *doctor) settings() {
	base := string(d.command.LinkBaseURL)
	host, _, _ := strings.Cut(d.command.LinkBaseURL.Authority(), ":")
	if strings.HasPrefix(base, "http://") && host != "localhost" && !strings.HasPrefix(host, "127.") {
		d.add(checkWarning, "settings", "LINK_BASE_URL "+base+" has no TLS", "use https://: browsers warn of the rest, and apps do not open such links")
		return
	}
	d.ok("settings", "they can be read; short URLs begin with "+base)
}

// How far control's clock may be from that of Postgres. Session tokens are given 5 seconds.
const (
	clockWarning = time.Second
	clockError   = 5 * time.Second
)

func (d *doctor) clock() {
	ctx, cancel := d.bounded()
	defer cancel()
	before := time.Now()
	now, err := d.store.Clock(ctx)
	after := time.Now()
	if err != nil {
		d.fails("clock", err)
		return
	}
	d.found = append(d.found, judgeClock(before, now, after))
}

// judgeClock says how far the clock that answered now is off, when it was asked between before and after.
func judgeClock(before, now, after time.Time) finding {
	var off time.Duration
	switch {
	case now.Before(before):
		off = before.Sub(now)
	case now.After(after):
		off = now.Sub(after)
	}
	f := finding{"clock", checkOK, fmt.Sprintf("this machine's and that of Postgres differ by %v at most", max(off+after.Sub(before), time.Millisecond).Round(time.Millisecond)), ""}
	switch {
	case off > clockError:
		f.Status = checkError
	case off > clockWarning:
		f.Status = checkWarning
	}
	if f.Status != checkOK {
		f.Found = fmt.Sprintf("this machine's and that of Postgres differ by %v", off.Round(time.Millisecond))
		f.Do = "set both by NTP: links expire and session tokens end by them"
	}
	return f
}

// oldestPostgres is the first version of Postgres that tests run on.
const oldestPostgres = 150000

// postgres reports whether there is more to ask it.
func (d *doctor) postgres() bool {
	ctx, cancel := d.bounded()
	defer cancel()
	began := time.Now()
	var err error
	if d.server, err = d.store.Server(ctx); err != nil {
		d.add(checkError, "postgres", err.Error(), connectionAdvice(err))
		return false
	}
	d.ok("postgres", fmt.Sprintf("connected as %s in %v", d.server.Role, time.Since(began).Round(time.Millisecond)))
	d.primary()
	d.durability()
	d.connections()
	return true
}

// connectionAdvice says what to do when there is no connection.
func connectionAdvice(err error) string {
	switch postgres.Code(err) {
	case "28P01", "28000":
		return "set the role's password as DATABASE_URL has it (deploy/logins.sql), and see pg_hba.conf"
	case "3D000":
		return "create the database that DATABASE_URL names, then run control migrate"
	case "53300":
		return "raise max_connections or the limits of role and database, or let fewer clients connect"
	case "57P03":
		return "wait: Postgres is starting or stopping"
	case "42501":
		return "grant connect on the database, and membership in deeplink_control, to the role"
	}
	return "see host and port in DATABASE_URL, that Postgres runs, and the network between"
}

func (d *doctor) primary() {
	switch {
	case d.server.InRecovery:
		d.add(checkError, "primary", "this is a standby", "name the primary in DATABASE_URL, or all hosts and target_session_attrs=read-write")
	case d.server.ReadOnly:
		d.add(checkError, "primary", "transactions are read only", "see default_transaction_read_only of server, database and role")
	default:
		d.ok("primary", "it takes writes")
	}
	if d.server.VersionNumber < oldestPostgres {
		d.add(checkError, "postgres version", d.server.Version, "upgrade: 15 or newer is needed")
	} else {
		d.ok("postgres version", d.server.Version)
	}
}

// durability looks at whether what is committed is kept.
func (d *doctor) durability() {
	switch d.server.SynchronousCommit {
	case "off", "local":
		d.add(checkWarning, "synchronous_commit", "it is "+d.server.SynchronousCommit+" by default; control and edges raise it for themselves",
			"set it to on, or a change made by hand is lost with the server")
	default:
		d.ok("synchronous_commit", d.server.SynchronousCommit)
	}
	if d.server.Fsync {
		d.ok("fsync", "on")
	} else {
		d.add(checkWarning, "fsync", "off: a power failure loses what was acknowledged", "set it to on, unless this is a test")
	}
}

// connections compares what is free with what one control takes.
func (d *doctor) connections() {
	needed := int(d.command.Connections) + phoneConnections + relayConnections + dutyConnections
	found := fmt.Sprintf("%d of %d are free; a control takes up to %d", d.server.Free, d.server.Limit, needed)
	do := "raise max_connections, or the limit of role or database, or lower CONTROL_DATABASE_CONNECTIONS"
	switch {
	case d.server.Limit < needed:
		d.add(checkError, "connections", found, do)
	case d.server.Free < needed:
		d.add(checkWarning, "connections", found, do)
	default:
		d.ok("connections", found)
	}
}

// list checks that something is empty.
func (d *doctor) list(check string, read func(context.Context) ([]string, error), fine, bad, do string) {
	ctx, cancel := d.bounded()
	defer cancel()
	switch names, err := read(ctx); {
	case err != nil:
		d.fails(check, err)
	case len(names) > 0:
		d.add(checkError, check, bad+" "+strings.Join(names, ", "), do)
	default:
		d.ok(check, fine)
	}
}

func (d *doctor) indexes() {
	d.list("indexes", d.store.BadIndexes, "all are there and valid", "missing or invalid:",
		"as the owner: reindex index concurrently, or make it again as its migration does")
}

func (d *doctor) triggers() {
	d.list("triggers", d.store.DisabledTriggers, "those that tell edges of changes fire", "disabled:",
		"as the owner: alter table ... enable always trigger, then restart the edges: they may answer from before")
}

func (d *doctor) partitions() {
	ctx, cancel := d.bounded()
	defer cancel()
	days, err := d.store.MissingEventPartitions(ctx)
	switch {
	case err != nil:
		d.fails("event partitions", err)
	case len(days) > 1:
		d.add(checkError, "event partitions", "there is none for "+strings.Join(days, ", "), "see that a control serves and what it logs of a purge that failed")
	case len(days) == 1:
		// Midnight may just have been.
		d.add(checkWarning, "event partitions", "there is none for "+days[0], "look again in some minutes")
	default:
		d.ok("event partitions", "made for a week ahead")
	}
}

func (d *doctor) privileges() {
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
		d.add(checkError, "grants", "the role lacks "+some(missing), "run control migrate, and grant deeplink_control to the role (deploy/logins.sql)")
	case len(excess) > 0:
		d.add(checkWarning, "grants", "the role can do more than control needs: "+some(excess), "use a login with the rights of deeplink_control alone (deploy/logins.sql)")
	default:
		d.ok("grants", "what control needs and no more")
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
