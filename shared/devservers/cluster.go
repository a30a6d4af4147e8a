package devservers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const superuser = "postgres"

// cluster is a folder with PostgreSQL's data, password and log, and the programs that match the data.
type cluster struct {
	dir      string
	bin      string
	password string
	owner    *syscall.Credential // nil: the current user
}

func (c cluster) data() string         { return filepath.Join(c.dir, "data") }
func (c cluster) log() string          { return filepath.Join(c.dir, "postgres.log") }
func (c cluster) passwordFile() string { return filepath.Join(c.dir, "password") }

// openCluster creates what is missing in dir.
func openCluster(ctx context.Context, dir string, durable bool) (cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return cluster{}, err
	}
	c := cluster{dir: dir}
	if os.Geteuid() == 0 {
		// PostgreSQL refuses to run as root.
		if c.owner, err = unprivileged(); err != nil {
			return cluster{}, err
		}
	}
	if err := c.settle(); err != nil {
		return cluster{}, err
	}
	version, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cluster{}, err
	}
	if c.bin, err = binaries(strings.TrimSpace(string(version))); err != nil {
		return cluster{}, err
	}
	if version == nil {
		if err := c.initialize(ctx, durable); err != nil {
			return cluster{}, err
		}
	}
	password, err := os.ReadFile(c.passwordFile())
	if err != nil {
		return cluster{}, err
	}
	c.password = string(bytes.TrimSpace(password))
	return c, truncate(c.log())
}

// unprivileged returns the user that PostgreSQL runs as if the current user is root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres")
}

// settle creates the folder and gives it to its owner. If the owner cannot reach it, because a parent folder is closed, the cluster moves
// to a folder under /var/lib that depends only on dir.
func (c *cluster) settle() error {
	err := c.own()
	if !errors.Is(err, fs.ErrPermission) || c.owner == nil {
		return err
	}
	sum := sha256.Sum256([]byte(c.dir))
	c.dir = fmt.Sprintf("/var/lib/deeplink-%x", sum[:6])
	return c.own()
}

// own creates the folder and returns fs.ErrPermission if its owner cannot enter it.
func (c *cluster) own() error {
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if c.owner == nil {
		return nil
	}
	if err := os.Chown(c.dir, int(c.owner.Uid), int(c.owner.Gid)); err != nil {
		return err
	}
	// The child changes its user first and its folder second, so the kernel itself decides.
	cmd := exec.Command("/bin/true")
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner}
	return cmd.Run()
}

// binaries returns the folder of PostgreSQL's programs: those of the given major version, or the newest if it is empty. Debian does not add
// it to PATH.
func binaries(version string) (string, error) {
	pattern := "/usr/lib/postgresql/*/bin/postgres"
	if version != "" {
		pattern = "/usr/lib/postgresql/" + version + "/bin/postgres"
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	newest, bin := -1, ""
	for _, program := range found {
		dir := filepath.Dir(program)
		major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err == nil && major > newest {
			newest, bin = major, dir
		}
	}
	if bin != "" {
		return bin, nil
	}
	program, err := exec.LookPath("postgres")
	if err != nil {
		return "", fmt.Errorf("find PostgreSQL %s: %w", version, err)
	}
	// A symbolic link, which packagers put into PATH, does not have initdb in the same directory.
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return "", err
	}
	return filepath.Dir(program), nil
}

// command returns a program of PostgreSQL that runs as the owner, without the environment of this process.
func (c cluster) command(name string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), arguments...)
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner}
	return cmd
}

// initialize creates the data in a temporary folder and renames it when it is complete, so that a crash leaves nothing that looks like
// data.
func (c cluster) initialize(ctx context.Context, durable bool) error {
	if err := c.makePassword(); err != nil {
		return err
	}
	unfinished := c.data() + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	arguments := []string{
		"--pgdata", unfinished, "--username", superuser, "--auth", "scram-sha-256", "--pwfile", c.passwordFile(),
		"--encoding", "UTF8", "--locale", "C.UTF-8", "--no-instructions",
	}
	if !durable {
		arguments = append(arguments, "--no-sync")
	}
	if err := c.run(ctx, "initdb", arguments...); err != nil {
		return err
	}
	return os.Rename(unfinished, c.data())
}

// ownData gives the data to their owner and denies access to all other users.
func (c cluster) ownData() error {
	return filepath.WalkDir(c.data(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		if err := os.Chmod(path, mode); err != nil || c.owner == nil {
			return err
		}
		return os.Lchown(path, int(c.owner.Uid), int(c.owner.Gid))
	})
}

// run runs a program of PostgreSQL to its end, within startTimeout.
func (c cluster) run(ctx context.Context, name string, arguments ...string) error {
	cmd := c.command(name, arguments...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	program, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	select {
	case <-program.exited:
	case <-ctx.Done():
		_ = program.signal(syscall.SIGKILL)
		<-program.exited
		return fmt.Errorf("run %s: %w", name, ctx.Err())
	}
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("run %s: %s\n%s", name, program.exit, output.Bytes())
	}
	return nil
}

func (c cluster) makePassword() error { return c.keepPassword(rand.Text()) }

func (c cluster) keepPassword(password string) error {
	if err := os.WriteFile(c.passwordFile(), []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	if c.owner == nil {
		return nil
	}
	return os.Chown(c.passwordFile(), int(c.owner.Uid), int(c.owner.Gid))
}
