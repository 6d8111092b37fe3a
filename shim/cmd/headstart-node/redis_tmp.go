package main

func (c config) redisCredentials() (username, password string, err error) { return "", "", nil }
