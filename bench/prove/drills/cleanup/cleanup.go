// Package cleanup is `prove drills cleanup`: it runs the migration that partitions the audit trail and every purge of control on a Postgres
// full of old rows (fill.go). The duration of each statement comes from the log of Postgres (statements.go).
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"deeplink/bench/prove/proof"

	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/figures"
	"deeplink/bench/prove/fleet"
	"deeplink/deploy/stack"
	"deeplink/migrations"
)

// Command fills a private Postgres with old rows, migrates it, lets a control purge it, and reports the longest statement of each job.
type Command struct {
	Audit   int `default:"10000000" help:"Number of audit entries, from 800 days ago until now."`
	Changes int `default:"5000000" help:"Number of changes older than the retention."`
	Others  int `default:"1000000" help:"Number of old rows in each other table."`
}

const (
	// longest is the bound of each statement of a purge.
	longest = 2 * time.Second
	// beforePartitions is the last migration before the audit trail has partitions.
	beforePartitions = 14
	// patience is how long control may take to purge everything. It waits ten minutes before it deletes the first change.
	patience = time.Hour
	// roundsWithDeadRows is how many rounds of purges are measured when only dead rows are left.
	roundsWithDeadRows = 3
)

// Run prints a table. A bound that was exceeded is an error.
func (c Command) Run(ctx context.Context, out *proof.Output) error {
	findings, err := c.measure(ctx, out.Log)
	figures.Print(out, findings)
	return errors.Join(err, figures.Unkept(findings))
}

func (c Command) measure(ctx context.Context, log io.Writer) (findings []figures.Finding, err error) {
	s, closeAll, err := open(ctx, log)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return nil, err
	}
	owner, err := pgx.Connect(ctx, s.Owner)
	if err != nil {
		return nil, err
	}
	defer owner.Close(context.WithoutCancel(ctx))
	if _, err := migrations.To(ctx, s.Owner, beforePartitions); err != nil {
		return nil, err
	}
	if err := fillAudit(ctx, owner, c.Audit); err != nil {
		return nil, err
	}
	migrated, err := migrate(ctx, s)
	findings = append(findings, migrated...)
	if err != nil {
		return findings, err
	}
	if err := c.fill(ctx, owner); err != nil {
		return findings, err
	}
	// From here on Postgres logs the statements of control, and only those.
	if _, err := owner.Exec(ctx, `alter role deeplink_control_login set log_min_duration_statement = 0`); err != nil {
		return findings, err
	}
	purged, err := purge(ctx, s, owner)
	return append(findings, purged...), err
}

// open starts a Postgres with an empty database, and a Redis.
func open(ctx context.Context, log io.Writer) (s *stack.Stack, closeAll func() error, err error) {
	closeAll = func() error { return nil }
	bin, err := fleet.Build(ctx)
	if err != nil {
		return nil, closeAll, err
	}
	dir, err := os.MkdirTemp("", "deeplink-bench-")
	if err != nil {
		return nil, func() error { return os.RemoveAll(bin) }, err
	}
	// PostgreSQL may run as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, func() error { return errors.Join(os.RemoveAll(bin), os.RemoveAll(dir)) }, err
	}
	s, err = stack.Open(ctx, stack.Options{Dir: dir, Bin: bin, Durable: true, LinkBase: "http://127.0.0.1", Output: &fleet.LockedWriter{Out: log}})
	closeAll = func() error {
		var errs []error
		if s != nil {
			errs = append(errs, s.Close(context.WithoutCancel(ctx)))
			if elsewhere := s.PostgresElsewhere(); elsewhere != "" {
				errs = append(errs, os.RemoveAll(elsewhere))
			}
		}
		return errors.Join(append(errs, os.RemoveAll(bin), os.RemoveAll(dir))...)
	}
	if err != nil {
		return nil, closeAll, err
	}
	admin, err := pgx.Connect(ctx, s.Postgres.URL())
	if err != nil {
		return s, closeAll, err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{`drop database deeplink`, `create database deeplink`} {
		if _, err := admin.Exec(ctx, statement); err != nil {
			return s, closeAll, err
		}
	}
	return s, closeAll, nil
}

// migrate runs the migrations while a program of the previous version writes to the audit trail.
func migrate(ctx context.Context, s *stack.Stack) ([]figures.Finding, error) {
	conn, err := pgx.Connect(ctx, s.Owner)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	count := func() (n int, err error) {
		err = conn.QueryRow(ctx, `select count(*) from audit_log`).Scan(&n)
		return n, err
	}
	before, err := count()
	if err != nil {
		return nil, err
	}
	writing, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		written int
		longest time.Duration
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		var r result
		r.written, r.longest, r.err = writeEntries(writing, s.Owner)
		ended <- r
	}()
	began := time.Now()
	_, err = migrations.Up(ctx, s.Owner)
	took := time.Since(began)
	stop()
	written := <-ended
	if err := errors.Join(err, written.err); err != nil {
		return nil, err
	}
	after, err := count()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "migrated in %v\n", took.Round(10*time.Millisecond))
	lost := before + written.written - after
	return []figures.Finding{
		figures.AtMost(fmt.Sprintf("migrations with %d entries in the audit trail took %v: longest of %d writes to it meanwhile", before, took.Round(100*time.Millisecond), written.written),
			written.longest, longest),
		figures.None("entries lost by the migration", lost, before+written.written),
	}, nil
}

// writeEntries adds entries to the audit trail until ctx ends. It returns their number and the duration of the longest insert.
func writeEntries(ctx context.Context, databaseURL string) (written int, longest time.Duration, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for fleet.Pause(ctx, 5*time.Millisecond) {
		began := time.Now()
		if _, err := conn.Exec(context.WithoutCancel(ctx), insertEntrySQL); err != nil {
			return written, longest, err
		}
		written++
		longest = max(longest, time.Since(began))
	}
	return written, longest, nil
}

// purge runs control until it has purged everything. Then two controls run some more rounds with only dead rows left, which vacuum may not
// remove.
func purge(ctx context.Context, s *stack.Stack, owner *pgx.Conn) (findings []figures.Finding, err error) {
	// The snapshot of a forgotten session keeps every deleted row from here on.
	reader, err := pgx.Connect(ctx, s.Owner)
	if err != nil {
		return nil, err
	}
	defer reader.Close(context.WithoutCancel(ctx))
	for _, statement := range []string{`begin isolation level repeatable read`, `select count(*) from organizations`} {
		if _, err := reader.Exec(ctx, statement); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	old, err := oldRows(ctx, owner, began)
	if err != nil {
		return nil, err
	}
	var first statements
	var dead map[string]int
	// A running control continues where its last round ended; a new one starts without that position.
	err = withControl(ctx, s, func(admin string) (err error) {
		if err := awaitPurged(ctx, owner, began); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "purged in %v\n", time.Since(began).Round(time.Second))
		if first, err = readStatements(s.Postgres.Dir); err != nil {
			return err
		}
		if dead, err = deadRows(ctx, owner); err != nil {
			return err
		}
		return awaitRounds(ctx, admin, roundsWithDeadRows)
	})
	if err != nil {
		return nil, err
	}
	if err := withControl(ctx, s, func(admin string) error { return awaitRounds(ctx, admin, roundsWithDeadRows) }); err != nil {
		return nil, err
	}
	all, err := readStatements(s.Postgres.Dir)
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		f, after := first.of(job), all.of(job).since(first.of(job))
		findings = append(findings,
			figures.AtMost(fmt.Sprintf("%s: %d old rows, longest of %d statements", job.name, old[job.name], f.n), f.longest, longest))
		if after.n > 0 {
			findings = append(findings,
				figures.AtMost(fmt.Sprintf("%s: %d dead rows, longest of %d statements after that", job.name, dead[job.table], after.n), after.longest, longest))
		}
	}
	return append(findings, figures.None("statements that Postgres canceled after their timeout", all.ended, all.n)), nil
}

// withControl runs f while control serves.
func withControl(ctx context.Context, s *stack.Stack, f func(admin string) error) error {
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return err
	}
	node, err := s.StartControl(ctx, addrs[0])
	if err != nil {
		return err
	}
	return errors.Join(f(node.Admin), node.Stop(context.WithoutCancel(ctx), fleet.StopTimeout))
}

// awaitPurged waits until no row is left that was old at that time.
func awaitPurged(ctx context.Context, owner *pgx.Conn, at time.Time) error {
	for fleet.Pause(ctx, 15*time.Second) {
		left, err := oldRows(ctx, owner, at)
		if err != nil {
			return err
		}
		n := 0
		for _, rows := range left {
			n += rows
		}
		fmt.Fprintf(os.Stderr, "%d rows to purge\n", n)
		if n == 0 {
			return nil
		}
		if time.Since(at) > patience {
			return fmt.Errorf("%w: after %v there are still rows to purge: %v", figures.ErrBound, patience, left)
		}
	}
	return ctx.Err()
}

// awaitRounds waits until control has completed that many more rounds of purges.
func awaitRounds(ctx context.Context, admin string, rounds int) error {
	const metric = `deeplink_control_purges_total{result="success"}`
	before, err := fleet.Metric(ctx, admin, metric)
	if err != nil {
		return err
	}
	for fleet.Pause(ctx, time.Second) {
		succeeded, err := fleet.Metric(ctx, admin, metric)
		if err != nil || succeeded >= before+float64(rounds) {
			return err
		}
	}
	return ctx.Err()
}
