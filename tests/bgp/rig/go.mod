module nodeipam.io/tests/bgp/rig

go 1.26.0
