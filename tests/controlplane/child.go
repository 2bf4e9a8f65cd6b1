// One server process: started, seen to be ready, stopped, killed, started again.
//
// A child never outlives the supervisor. The kernel kills it when the supervisor dies in whatever way
// (PDEATHSIG), and a child of our own binary also ends when its standard input closes.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout is generous: a start takes about 2 s on an idle machine, and test machines are not idle.
	startTimeout = 2 * time.Minute
	// stopTimeout is longer than the minute for which kube-apiserver may wait for requests in flight.
	stopTimeout = 75 * time.Second
	// probePause is the time between two looks at a server that is not ready yet.
	probePause = 25 * time.Millisecond
)

// child is a server that may or may not be running. Its methods are called by one goroutine at a time.
type child struct {
	name    string
	program string
	args    []string
	log     string
	ready   func(context.Context) error
	spawner spawner
	// died is called when the process ends without having been told to.
	died func(name string, err error)

	mu      sync.Mutex
	current *process // Guarded by mu; nil when nothing runs.
}

type process struct {
	command *exec.Cmd
	stdin   io.Closer
	told    bool          // Guarded by child.mu: the end was asked for.
	ended   chan struct{} // Closed after err is set.
	err     error
}

// start starts the process and returns when it is ready.
func (c *child) start(ctx context.Context) error {
	p, err := c.launch()
	if err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := c.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it was ready (%v); its log is %s", c.name, p.err, c.log)
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready (%w); its log is %s", c.name, err, c.log)
		case <-time.After(probePause):
		}
	}
}

func (c *child) launch() (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return nil, errors.New("already running")
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // The process has its own copy.
	command := exec.Command(c.program, c.args...)
	command.Stdout, command.Stderr = log, log
	// A process group of its own: a Ctrl-C at the terminal reaches the supervisor alone, which then ends its children.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.spawner.start(command); err != nil {
		return nil, err
	}
	p := &process{command: command, stdin: stdin, ended: make(chan struct{})}
	c.current = p
	go func() {
		p.err = command.Wait()
		c.mu.Lock()
		c.current = nil
		told := p.told
		c.mu.Unlock()
		close(p.ended)
		if !told {
			c.died(c.name, p.err)
		}
	}()
	return p, nil
}

// stop asks the process to end and returns when it has ended.
func (c *child) stop() error {
	p, err := c.signal(syscall.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	if err := c.kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s had to be killed: it had not ended %v after SIGTERM", c.name, stopTimeout)
}

// kill ends the process without giving it a chance, and returns when it has ended.
func (c *child) kill() error {
	p, err := c.signal(syscall.SIGKILL)
	if err != nil {
		return err
	}
	<-p.ended
	return nil
}

func (c *child) signal(signal syscall.Signal) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, fmt.Errorf("%s is not running", c.name)
	}
	c.current.told = true
	if err := c.current.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, fmt.Errorf("signalling %s: %w", c.name, err)
	}
	return c.current, nil
}

// pid is the process id, or 0 when nothing runs.
func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return 0
	}
	return c.current.command.Process.Pid
}

// spawner starts processes from one thread that lives as long as the supervisor, because PDEATHSIG acts when the
// *thread* that forked ends, and Go ends threads as it likes.
type spawner chan<- spawnRequest

type spawnRequest struct {
	command *exec.Cmd
	result  chan<- error
}

func newSpawner() spawner {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for request := range requests {
			request.result <- request.command.Start()
		}
	}()
	return requests
}

func (s spawner) start(command *exec.Cmd) error {
	result := make(chan error, 1)
	s <- spawnRequest{command, result}
	return <-result
}

// exitWhenStdinCloses ends this process once nobody holds the other end of its standard input.
func exitWhenStdinCloses() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}
