package replica

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
)

// addressForm is the check constraint on edges.address, except that it also accepts ports above 65535. A poll that writes any other
// address fails, and the edge then gets no lease.
var addressForm = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}$`)

// maxAddress is the length of a host name of 253 bytes with a port.
const maxAddress = 259

// ValidAddress reports whether s is a host name or IP address with a port from 1 to 65535.
func ValidAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil || len(s) > maxAddress || !addressForm.MatchString(s) {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// advertisedAddress completes Options.Address. An address without a host gets the host of local, the near end of a connection to the
// database, or the machine's host name if local is not an IP address. The result is nil if address is empty.
func advertisedAddress(address string, local net.Addr) (*string, error) {
	if address == "" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		// An IPv6 zone has a meaning on this machine only.
		if near, err := netip.ParseAddrPort(local.String()); err == nil && near.Addr().Zone() == "" {
			host = near.Addr().Unmap().String()
		} else if host, err = os.Hostname(); err != nil {
			return nil, err
		}
		address = net.JoinHostPort(host, port)
	}
	if !ValidAddress(address) {
		return nil, fmt.Errorf("%q is not a host and a port from 1 to 65535", address)
	}
	return &address, nil
}
