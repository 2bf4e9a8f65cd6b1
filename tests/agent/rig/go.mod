module nodeipam.io/tests/agent/rig

go 1.26.0
