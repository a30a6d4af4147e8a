// Package stack runs a whole Deeplink on one machine: a private PostgreSQL and Redis, migrated, with the least-privileged roles, and any
// number of controls and edges as real processes. It is for `make run` and bench, never for production.
package stack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/devservers"
)

// Options configure a stack.
type Options struct {
	// Dir holds the servers' data and logs, and the keys of match tokens. Existing content is reused.
	Dir string
	// Bin is the folder of the programs, as [Build] fills it.
	Bin string
	// Durable data survive a power failure.
	Durable bool
	// LinkBase is LINK_BASE_URL of every program.
	LinkBase string
	// Output receives the output of the programs. It must be safe for concurrent use.
	Output io.Writer
}

// Stack is a running Deeplink. Its methods are safe for concurrent use, except that Close must be the last.
type Stack struct {
	Postgres *devservers.Postgres
	Redis    *devservers.Redis
	// Owner is the URL of the database as its owner, Control and Edge as the login roles of the programs.
	Owner, Control, Edge string

	tokenKeys string // MATCH_TOKEN_KEYS of every edge
	options   Options
}

const (
	database    = "deeplink"
	controlRole = "deeplink_control"
	edgeRole    = "deeplink_edge"
	loginSuffix = "_login"
)

// Build compiles control and edge into dir, from the module of the working directory. flags are flags of go build, usually none: then it
// links the programs that [devservers.Build] keeps.
func Build(ctx context.Context, dir string, flags ...string) error {
	if len(flags) == 0 {
		return linkPrograms(ctx, dir)
	}
	arguments := append([]string{"build", "-o", dir + string(filepath.Separator)}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(arguments, "deeplink/control", "deeplink/edge")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build control and edge: %w\n%s", err, out)
	}
	return nil
}

func linkPrograms(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"control", "edge"} {
		program, err := devservers.Build(ctx, "deeplink/"+name)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, name)
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if os.Link(program, target) == nil {
			continue
		}
		// dir is on another file system.
		if out, err := exec.CommandContext(ctx, "cp", program, target).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s to %s: %w\n%s", program, target, err, out)
		}
	}
	return nil
}

// Open starts the servers and migrates the database. The caller closes the result.
func Open(ctx context.Context, options Options) (*Stack, error) {
	s := &Stack{options: options}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// When open fails, Close stops what runs.
func (s *Stack) open(ctx context.Context) (err error) {
	if s.Postgres, err = devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: postgresDir(s.options), Durable: s.options.Durable}); err != nil {
		return err
	}
	if s.Redis, err = devservers.StartRedis(ctx, devservers.RedisOptions{Dir: filepath.Join(s.options.Dir, "redis")}); err != nil {
		return err
	}
	if err = s.createDatabase(ctx); err != nil {
		return err
	}
	if _, err = s.Operate(ctx, s.Owner, "migrate"); err != nil {
		return err
	}
	if s.Control, err = s.login(ctx, controlRole); err != nil {
		return err
	}
	if s.Edge, err = s.login(ctx, edgeRole); err != nil {
		return err
	}
	s.tokenKeys, err = readOrMakeTokenKeys(filepath.Join(s.options.Dir, "match-token-keys"))
	return err
}

// Use makes dir the folder of programs that start from now on. It is not safe for concurrent use.
func (s *Stack) Use(dir string) { s.options.Bin = dir }

// ServeLinksAt sets LINK_BASE_URL of programs that start from now on. It is not safe for concurrent use.
func (s *Stack) ServeLinksAt(linkBase string) { s.options.LinkBase = linkBase }

// PostgresElsewhere returns the folder of Postgres's data if it is not in the folder of the options, because PostgreSQL's user cannot reach
// that, and "" otherwise.
func (s *Stack) PostgresElsewhere() string {
	if inside, err := filepath.Abs(postgresDir(s.options)); err == nil && inside == s.Postgres.Dir {
		return ""
	}
	return s.Postgres.Dir
}

func postgresDir(options Options) string { return filepath.Join(options.Dir, "postgres") }

// Close stops the servers. The programs must have been stopped before.
func (s *Stack) Close(ctx context.Context) error {
	var errs []error
	if s.Redis != nil {
		errs = append(errs, s.Redis.Stop(ctx))
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Stop(ctx))
	}
	return errors.Join(errs...)
}

func (s *Stack) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.Postgres.URL())
	if err != nil {
		return fmt.Errorf("connect to create the database: %w", err)
	}
	defer conn.Close(ctx)
	var exists bool
	if err := conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, database).Scan(&exists); err != nil {
		return fmt.Errorf("look for the database: %w", err)
	}
	if !exists {
		if _, err := conn.Exec(ctx, `create database `+database); err != nil {
			return fmt.Errorf("create the database: %w", err)
		}
	}
	owner, err := url.Parse(s.Postgres.URL())
	if err != nil {
		return err
	}
	owner.Path = "/" + database
	s.Owner = owner.String()
	return nil
}

// login creates the login role of a group role, with a new password each time, and returns its URL.
func (s *Stack) login(ctx context.Context, group string) (string, error) {
	conn, err := pgx.Connect(ctx, s.Owner)
	if err != nil {
		return "", fmt.Errorf("connect to make role %s: %w", group, err)
	}
	defer conn.Close(ctx)
	name, password := group+loginSuffix, rand.Text()
	var exists bool
	if err := conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1)`, name).Scan(&exists); err != nil {
		return "", fmt.Errorf("look for role %s: %w", name, err)
	}
	verb := "create"
	if exists {
		verb = "alter"
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`%s role %s login password '%s'`, verb, name, password)); err != nil {
		return "", fmt.Errorf("%s role %s: %w", verb, name, err)
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`grant %s to %s`, group, name)); err != nil {
		return "", fmt.Errorf("grant %s: %w", group, err)
	}
	u, err := url.Parse(s.Owner)
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(name, password)
	return u.String(), nil
}

// Operate runs an operator's command of control, such as "org", "list", as the role of databaseURL, and returns the JSON that it prints.
func (s *Stack) Operate(ctx context.Context, databaseURL string, arguments ...string) (json.RawMessage, error) {
	return s.OperateThrough(ctx, databaseURL, s.Redis.URL(), arguments...)
}

// OperateThrough is Operate with another Redis URL.
func (s *Stack) OperateThrough(ctx context.Context, databaseURL, redisURL string, arguments ...string) (json.RawMessage, error) {
	out, err := s.command(ctx, databaseURL, redisURL, arguments...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("control %v: %w", arguments, err)
	}
	return out, nil
}

// Command returns an operator's command of control, as the role of control, without starting it: for output that does not fit in memory.
func (s *Stack) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	return s.command(ctx, s.Control, s.Redis.URL(), arguments...)
}

func (s *Stack) command(ctx context.Context, databaseURL, redisURL string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "control"), arguments...)
	cmd.Env = s.environment("DATABASE_URL="+databaseURL, "REDIS_URL="+redisURL)
	return cmd
}

// environment returns the environment of a program: PATH, HOME, LINK_BASE_URL and its settings.
func (s *Stack) environment(settings ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LINK_BASE_URL=" + s.options.LinkBase}, settings...)
}
