package replica

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
)

// addressForm is what the table edges takes, ports beyond 65535 apart. A poll that offers anything else fails, and the lease with it.
var addressForm = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}$`)

// maxAddress is the length of a host name of 253 bytes with a port.
const maxAddress = 259

// ValidAddress reports whether s is a host, which may be an address, and a port of 1 to 65535.
func ValidAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil || len(s) > maxAddress || !addressForm.MatchString(s) {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// reachedAt completes Options.Address: one without a host gets that of local, the near end of a connection to the database, or the
// host name when that end is on no network. It is nil when control cannot be told.
func reachedAt(address string, local net.Addr) (*string, error) {
	if address == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		// A zone means something on this machine alone.
		if near, err := netip.ParseAddrPort(local.String()); err == nil && near.Addr().Zone() == "" {
			host = near.Addr().Unmap().String()
		} else if host, err = os.Hostname(); err != nil {
			return nil, err
		}
		address = net.JoinHostPort(host, port)
	}
	if !ValidAddress(address) {
		return nil, fmt.Errorf("%q is no host and port", address)
	}
	return &address, nil
}
