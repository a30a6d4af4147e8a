// Package confirm asks before a command writes into data that other people may use.
package confirm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// DemoOrganization is the orgKey of the organization that `make run` creates for trying things out.
const DemoOrganization = "demo"

var (
	// ErrNoTerminal means that there is no terminal to ask on.
	ErrNoTerminal = errors.New("not confirmed: there is no terminal to ask on; --yes confirms")
	// ErrDeclined means that the user did not answer yes.
	ErrDeclined = errors.New("not confirmed: nothing was written")
)

// Write asks on the terminal whether to do what, such as "create 100 links in organization ab12". It returns nil only after a yes.
func Write(what string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stderr.Fd())) {
		return fmt.Errorf("this would %s: %w", what, ErrNoTerminal)
	}
	return ask(what, os.Stdin, os.Stderr)
}

func ask(what string, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "This will %s. Continue? [y/N] ", what)
	line, _ := bufio.NewReader(in).ReadString('\n') // an error leaves what was typed until then
	if reply := strings.ToLower(strings.TrimSpace(line)); reply != "y" && reply != "yes" {
		return ErrDeclined
	}
	return nil
}
