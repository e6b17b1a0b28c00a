"""What holds, moves and adds arrays: conversion, the contracts of backends and transports, and collectives."""
