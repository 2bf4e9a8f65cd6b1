// Loopback ports that stay ours while a server is down.
//
// Picking a free port by opening and closing a listener is a race: any program may take the port before the
// server binds it, or while the server is restarted. So each port is bound, without listening, for the life of
// the supervisor. Linux then neither hands it out as an ephemeral port nor lets another bind without
// SO_REUSEADDR have it, while a server (Go sets SO_REUSEADDR on listeners) can listen on it at any time,
// because the flag is set on our socket too.
//
// A port of an earlier run must be bound with SO_REUSEADDR from the start, since old connections linger on it.
// Another supervisor would then be let in as well; a name in the kernel's abstract socket space keeps it out.

package main

import (
	"fmt"
	"syscall"
)

// reservePort reserves a port of 127.0.0.1: the wanted one if it is free, else any.
// The reservation lasts as long as the process.
func reservePort(wanted int) (int, error) {
	if wanted != 0 && takeName(wanted) == nil {
		if port, err := bindPort(wanted); err == nil {
			return port, nil
		}
	}
	for {
		port, err := bindPort(0)
		if err != nil {
			return 0, err
		}
		// It fails if another supervisor has named the port and not bound it yet; that one shall have it.
		if takeName(port) == nil {
			return port, nil
		}
	}
}

// takeName fails if another supervisor has the port.
func takeName(port int) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("naming port %d: socket: %w", port, err)
	}
	// A leading @ makes the name abstract: no file, and gone with the process.
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("@nodeipam-controlplane-port-%d", port)}); err != nil {
		syscall.Close(fd)
		return fmt.Errorf("naming port %d: bind: %w", port, err)
	}
	return nil
}

func bindPort(port int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reserving port %d: socket: %w", port, err)
	}
	share := func() error { return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) }
	if port != 0 {
		err = share()
	}
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	// The kernel picks a port that nobody has only for a socket that does not share.
	if err == nil && port == 0 {
		err = share()
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(fd)
	}
	if err != nil {
		syscall.Close(fd)
		return 0, fmt.Errorf("reserving port %d: %w", port, err)
	}
	return bound.(*syscall.SockaddrInet4).Port, nil
}
